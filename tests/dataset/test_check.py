"""Each way in which a dataset can be unusable has its own line."""

from dataclasses import replace

import torch

from fedcomp.dataset.check import check
from fedcomp.dataset.contract import Dataset, Samples
from tests.looped import looped
from tests.refused import one_line_error

CLASSES = Dataset(
    name="mine",
    train=Samples(torch.zeros(4, 3), torch.tensor([0, 1, 1, 0])),
    test=Samples(torch.zeros(2, 3), torch.tensor([0, 1])),
    task="classification",
    num_outputs=2,
)
NUMBERS = replace(
    CLASSES,
    task="regression",
    num_outputs=1,
    train=Samples(torch.zeros(4, 3), torch.zeros(4, 1)),
    test=Samples(torch.zeros(2, 3), torch.zeros(2, 1)),
)
IMAGES = replace(
    CLASSES,
    train=Samples(torch.zeros(4, 5, 6, 3, dtype=torch.uint8), torch.tensor([0, 1, 1, 0])),
    test=Samples(torch.zeros(2, 5, 6, 3, dtype=torch.uint8), torch.tensor([0, 1])),
    crop_padding=1,
    flip=True,
)
TOKENS = replace(
    CLASSES,
    task="next_token",
    train=Samples(torch.tensor([[0, 4], [1, 2], [3, 3]], dtype=torch.uint8), torch.tensor([[4, 1], [2, 0], [3, 3]])),
    test=Samples(torch.tensor([[2, 2]], dtype=torch.uint8), torch.tensor([[2, 1]])),
    num_outputs=5,
    vocab_size=5,
)
MASK = torch.tensor([0, 2, 255]).to(torch.uint8).expand(2, 4, 2, 3).reshape(4, 2, 6)
PIXELS = replace(
    IMAGES,
    task="segmentation",
    train=Samples(torch.zeros(4, 2, 6, 3, dtype=torch.uint8), MASK),
    test=Samples(torch.zeros(2, 2, 6, 3, dtype=torch.uint8), MASK[:2]),
    num_outputs=3,
)
OWNED = replace(CLASSES, train=replace(CLASSES.train, owner=torch.tensor([3, 0, 0, 3])))


def with_train(dataset, **parts):
    return replace(dataset, train=replace(dataset.train, **parts))


WITH_NAN = torch.zeros(4, 3)
WITH_NAN[2, 1] = torch.nan


def test_good_datasets_pass():
    for dataset in (CLASSES, NUMBERS, IMAGES, TOKENS, PIXELS, OWNED):
        check(dataset)
    check(replace(IMAGES, mean=torch.ones(3), std=torch.ones(3)))


@looped(
    "dataset, line",
    [
        (
            replace(with_train(CLASSES, y=torch.ones(4).long()), class_names=("a", "b")),
            r"dataset=mine: train.y is class 1 \('b'\) in all 4 samples, so that there is nothing to tell apart",
        ),
        (replace(CLASSES, class_names=("a", "b\nc")), r"class 'b\\nc' contains '\\n', but must be one line of text"),
        (replace(CLASSES, class_names=None), r"class_names is a NoneType, but must be a tuple of words, or"),
        (replace(CLASSES, class_names=(0, 1)), r"dataset=mine: class_names are \[0, 1\], but must be words"),
        (
            with_train(CLASSES, y=torch.eye(2)[CLASSES.train.y]),
            r"train.y is \(4, 2\) of 0 and 1, but a class is its number: y.argmax\(1\)",
        ),
        (replace(CLASSES, class_names=("a",)), r"dataset=mine: class_names are 1, but num_outputs is 2"),
        ((CLASSES.train, CLASSES.test), "the dataset is a tuple, but its function must return a Dataset"),
        (replace(CLASSES, test=(torch.zeros(2, 3), torch.arange(2))), "test is a tuple, but must be Samples"),
        (with_train(CLASSES, x=torch.zeros(4, 3).numpy()), r"dataset=mine: train.x is a ndarray, but must be a tensor"),
        (
            with_train(CLASSES, x=torch.zeros(4, 3, requires_grad=True)),
            r"train.x requires gradients, which are those of",
        ),
        (
            with_train(CLASSES, x=torch.eye(4, 3).to_sparse()),
            r"train.x is a sparse tensor, but must be a dense one: give train.x.to_dense\(\)",
        ),
        (
            replace(CLASSES, test=replace(CLASSES.test, y=torch.tensor([0, 1]).to_sparse())),
            r"test.y is a sparse tensor",
        ),
        (replace(CLASSES, mean=torch.zeros(3).to_sparse()), r"mean is a sparse tensor"),
        (with_train(CLASSES, owner=["ann"] * 4), r"dataset=mine: train.owner is a list, but must be a tensor"),
        (replace(CLASSES, std=[1.0]), r"dataset=mine: std is a list, but must be a tensor"),
        (replace(CLASSES, num_outputs=2.0), r"dataset=mine: num_outputs is 2.0, but must be a whole number, 1 or more"),
        (with_train(CLASSES, y=CLASSES.train.y[:, None]), r"train.y is \(4, 1\), but one class a sample is \[n\]"),
        (with_train(IMAGES, x=torch.zeros(4, 3, 8, 8)), r"train.x is \(4, 3, 8, 8\), which looks like \[n, C, H, W\]"),
        (replace(CLASSES, name="mine\t2"), r"dataset.name 'mine\\t2' contains"),
        (replace(CLASSES, task="ranking"), r"dataset=mine: task is 'ranking', but must be one of classification, regr"),
        (replace(CLASSES, test=Samples(torch.zeros(0, 3), torch.zeros(0).long())), r"mine: test has no samples"),
        (with_train(CLASSES, y=torch.zeros(3).long()), r"train has 4 inputs x, but 3 lab"),
        (with_train(CLASSES, x=torch.zeros(4)), r"train.x is torch.float32 \(4,\)"),
        (with_train(CLASSES, x=torch.zeros(4, 3).double()), r"train.x is torch.float64"),
        (with_train(CLASSES, x=torch.zeros(4, 2)), r"sample is .* \(2,\), but .* \(3,\)"),
        (with_train(CLASSES, y=torch.zeros(4)), r"classification needs int64"),
        (replace(CLASSES, num_outputs=1), r"train.y is 1 at sample 1, but classes are 0 to 0"),
        (replace(CLASSES, test=Samples(torch.zeros(2, 3), torch.tensor([0, -1]))), r"test.y is -1 at sample 1"),
        (replace(NUMBERS, num_outputs=2), r"regression needs float32 \[n, 2\]"),
        (
            with_train(CLASSES, x=WITH_NAN),
            "dataset=mine: train.x is nan at sample 2, entry 1; every value must be fini",
        ),
        (
            replace(NUMBERS, test=Samples(torch.zeros(2, 3), torch.tensor([[0.0], [-float("inf")]]))),
            r"dataset=mine: test.y is -inf at sample 1, entry 0",
        ),
        (replace(CLASSES, mean=torch.zeros(2)), r"mean has shape \(2,\), but needs 1 entry, or 3"),
        (replace(CLASSES, std=torch.tensor([1.0, 0.0, 1.0])), r"std is \[1.0, 0.0, 1.0\]; every entry must be above 0"),
        (replace(CLASSES, mean=torch.tensor([float("nan")])), r"mean is \[nan\]; every entry must be finite"),
        (with_train(TOKENS, x=torch.tensor([[0, 1], [0, 5], [0, 0]])), "train.x is 5 at sample 1, entry 1, but tokens"),
        (with_train(TOKENS, x=torch.tensor([[0, -1], [0, 4], [0, 0]])), "x is -1 at sample 0, entry 1, but tokens"),
        (with_train(TOKENS, x=torch.zeros(3, 2)), r"train.x is torch.float32 \(3, 2\), but tokens"),
        (with_train(TOKENS, y=torch.tensor([[0, 1], [0, 1], [7, 1]])), r"y is 7 at sample 2, entry 0, but classes"),
        (
            with_train(TOKENS, y=TOKENS.train.x.long()),
            r"train.y is x itself, which a model copies, .* x = tokens\[:, :-",
        ),
        (
            with_train(TOKENS, y=torch.tensor([[-100, 4], [-100, 2], [-100, 3]])),
            "train.y is x itself, which a model copies",
        ),
        (with_train(TOKENS, y=torch.tensor([0, 1, 2])), r"of a training sample are \(\), but of a test sample \(2,\)"),
        (with_train(OWNED, owner=torch.tensor([0, 1])), r"train.owner is torch.int64 \(2,\), but must be int64 \(4,\)"),
        (
            with_train(OWNED, owner=torch.tensor([0, 1, 2, -1])),
            "train.owner is -1 at sample 3, but owners are 0 or more$",
        ),
        (with_train(OWNED, owner=torch.zeros(4)), r"train.owner is torch.float32 \(4,\)"),
        (with_train(PIXELS, y=MASK.long()), r"train.y is torch.int64 \(4, 2, 6\), but segmentation of images"),
        (with_train(PIXELS, y=MASK[:, :, :5]), r"train.y is torch.uint8 \(4, 2, 5\), but segmentation of images"),
        (replace(PIXELS, num_outputs=2), r"train.y is 2 at a pixel of sample 0, but classes are 0 to 1, and 255 for"),
        (with_train(PIXELS, y=torch.full_like(MASK, 255)), r"train.y has no pixel of any class: all are 255"),
        (replace(CLASSES, flip=True), r"crop_padding, flip and rescale are for images"),
        (replace(CLASSES, rescale=(0.5, 1.5)), r"crop_padding, flip and rescale are for images"),
        (replace(IMAGES, rescale=(0.0, 1.5)), r"rescale is \[0.0, 1.5\], but must be two factors above 0"),
        (replace(IMAGES, rescale=(1.5, 0.5)), r"rescale is \[1.5, 0.5\], but must be two factors above 0"),
        (replace(IMAGES, rescale=(0.5, 1.5)), r"rescale crops images by itself, but crop_padding is 1"),
        (replace(IMAGES, crop_padding=-1), r"crop_padding is -1, but must be 0"),
        (replace(IMAGES, crop_padding=5), r"crop_padding is 5, but must be below the images' 5 pixels"),
        (replace(CLASSES, unlabelled="background"), r"unlabelled is 'background', but must be one of ignored, absent"),
    ],
)
def test_bad_datasets_are_refused_in_one_line(dataset, line):
    with one_line_error(line):
        check(dataset)


def test_labels_to_deal_by_are_single_classes():
    assert CLASSES.labels.tolist() == [0, 1, 1, 0]
    assert NUMBERS.labels is None
    assert TOKENS.labels is None
    several = replace(TOKENS, task="classification")
    assert several.labels is None
    assert several.target_shape == (2,)
    assert NUMBERS.target_shape == CLASSES.target_shape == ()


def test_a_picture_counts_as_the_class_of_most_of_its_pixels():
    y = torch.tensor([[0, 0, 0, 1, 2, 2], [0, 0, 0, 0, 0, 255], [255, 255, 255, 255, 1, 1], [1, 1, 2, 2, 0, 0]])
    pictures = with_train(PIXELS, y=y.to(torch.uint8)[:, None].expand(4, 2, 6))
    assert pictures.labels.tolist() == [0, 0, 1, 0]
    assert replace(pictures, background=True).labels.tolist() == [2, 0, 1, 1]


def test_bytes_are_tokens():
    """torch compares uint8 with 256 as with 0."""
    x = torch.tensor([[0, 255]], dtype=torch.uint8)
    samples = Samples(x.repeat(2, 1), torch.tensor([0, 255]))
    check(Dataset("bytes", samples, samples, "next_token", 256, vocab_size=256))
