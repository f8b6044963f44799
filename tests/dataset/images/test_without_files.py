"""Data sets of images that need no files: digits as scikit-learn gives them, and coloured shapes."""

import pytest
import torch
from torch.nn import functional

from fedcomp.dataset.check import check
from fedcomp.dataset.images import digits
from fedcomp.dataset.images.shapes import load
from fedcomp.dataset.tables.sklearn_files import read_table
from fedcomp.model.loss import evaluation_sums, metrics_of_sums
from tests.refused import refused


def rows(dataset):
    """All samples with their labels, in an order of their own."""
    x = torch.cat([dataset.train.x, dataset.test.x]).long()
    y = torch.cat([dataset.train.y, dataset.test.y])
    return sorted(map(tuple, torch.cat([x, y[:, None]], dim=1).tolist()))


@pytest.mark.thorough
def test_the_samples_are_scikit_learns_each_once():
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    expected = torch.cat([torch.from_numpy(pixels), torch.from_numpy(labels)[:, None]], dim=1).long()
    assert rows(digits.load()) == sorted(map(tuple, expected.tolist()))


def test_split_and_normalisation():
    dataset = digits.load()
    check(dataset)
    assert (len(dataset.train), len(dataset.test)) == (1600, 197)
    assert dataset.input_shape == (64,)
    assert dataset.train.x.dtype == torch.uint8
    inputs = dataset.normalise(dataset.train.x)
    assert (float(inputs.min()), float(inputs.max())) == (0.0, 1.0)
    raw = digits.load(pixels="raw")
    assert torch.equal(raw.normalise(raw.train.x), raw.train.x.float())
    assert len(dataset.test.y.unique()) == 10


def test_the_split_follows_its_seed():
    assert torch.equal(digits.load().train.x, digits.load().train.x)
    assert not torch.equal(digits.load().train.x, digits.load(split_seed=1).train.x)
    assert rows(digits.load(num_train=1)) == rows(digits.load(split_seed=1))


def test_who_changes_a_table_changes_its_own():
    read_table("digits.csv.gz", ",")[:] = 0
    assert read_table("digits.csv.gz", ",").any()


test_what_digits_refuse = refused(
    [
        *(({"num_train": num}, "m_train=.* must be a whole number from 1 to 1796") for num in (0, 1797, 1600.5, "all")),
        ({"pixels": "grey"}, r"dataset.pixels=grey must be one of unit, raw: inputs in"),
    ],
    digits.load,
)


SMALL = {"num_train": 24, "num_test": 4, "size": 32}


@pytest.fixture(scope="module")
def shapes():
    return load()


def quality(outputs, y):
    found = metrics_of_sums("segmentation", evaluation_sums("segmentation", outputs, y), len(y))
    return {name: float(value) for name, value in found.items()}


def test_sizes_and_areas(shapes):
    check(shapes)
    assert shapes.input_shape == (3, 64, 64)
    assert shapes.target_shape == (64, 64)
    assert (len(shapes.train), len(shapes.test), shapes.num_outputs) == (512, 200, 5)
    areas = torch.bincount(shapes.train.y.flatten(), minlength=256) / shapes.train.y.numel()
    assert areas[[0, 1, 2, 3, 4, 255]].tolist() == pytest.approx([0.75, 0.06, 0.05, 0.02, 0.045, 0.067], abs=0.01)


def test_the_line_to_beat_and_the_ceiling(shapes):
    """Background everywhere; and the true classes averaged over 8x8 cells, then enlarged, as a 1/8 network may do."""
    y = shapes.test.y
    flat = functional.one_hot(torch.zeros_like(y, dtype=torch.int64), 5).permute(0, 3, 1, 2).float()
    lower = quality(flat, y)
    assert (lower["accuracy"], lower["miou"]) == pytest.approx((0.793, 0.159), abs=0.001)
    true = functional.one_hot(y.long().clamp(max=5), 6)[..., :5].permute(0, 3, 1, 2).float()
    upper = quality(functional.interpolate(functional.avg_pool2d(true, 8), scale_factor=8, mode="bilinear"), y)
    assert upper["miou"] == pytest.approx(0.93, abs=0.015)


def test_a_picture_depends_on_its_number_only():
    many, few = load(**SMALL), load(**(SMALL | {"num_train": 5}))
    assert torch.equal(many.train.x[:5], few.train.x)
    assert torch.equal(many.train.y[:5], few.train.y)
    assert not torch.equal(many.train.x[:4], many.test.x)
    assert not torch.equal(load(**SMALL, seed=1).train.x, many.train.x)
    assert len({tuple(picture.flatten().tolist()) for picture in many.train.y}) == 24


def test_colours_follow_the_classes():
    """Without noise and with the classes' own hues, every pixel that has a class of a shape has its colour."""
    drawn = load(**SMALL, noise=0.0, hue=1.0)
    x, y = drawn.train.x, drawn.train.y
    for shape, colour in enumerate([(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0)], 1):
        assert (y == shape).any()
        assert (x[y == shape] == torch.tensor(colour)).all()
    behind = [picture[mask == 0].unique(dim=0) for picture, mask in zip(x, y)]
    assert all(len(colours) == 1 for colours in behind)


def test_pixels_beside_another_class_have_none():
    y = load(**SMALL).train.y.int()
    for one, other in ((y[:, 1:], y[:, :-1]), (y[:, :, 1:], y[:, :, :-1])):
        assert ((one == other) | (one == 255) | (other == 255)).all()
    assert (y == 255).any()


def test_pictures_are_those_of_the_seed():
    """Means over pixels, by weights that tell them apart; a pixel that another processor rounds differently is lost."""
    drawn = load(size=16, num_train=70, num_test=1, objects=3).train
    weights = [torch.linspace(0, 1, part.numel(), dtype=torch.float64) for part in (drawn.x, drawn.y)]
    means = [float((part.flatten() * weight).mean()) for part, weight in zip((drawn.x, drawn.y), weights)]
    assert means == pytest.approx([63.49079985, 35.29186688], rel=1e-6)


def test_one_object_a_picture_is_its_class():
    drawn = load(**(SMALL | {"num_train": 200}), objects=1)
    present = torch.stack([(drawn.train.y == shape).flatten(1).any(1) for shape in range(1, 5)], 1)
    assert (present.sum(1) == 1).all()
    assert torch.equal(drawn.labels, 1 + present.int().argmax(1))
    assert int(torch.bincount(drawn.labels, minlength=5)[1:].min()) > 30
    assert int((load(**SMALL, objects=9).labels == 0).sum()) == 0


test_what_shapes_refuse = refused(
    [
        ({"size": 15}, "dataset.size=15 must be a whole number, 16 or more"),
        ({"num_test": 0}, "dataset.num_test=0"),
        ({"objects": 10}, "dataset.objects=10 must be a whole number from 1 to 9"),
        ({"hue": 1.5}, r"dataset.hue=1.5 must be a number in \[0, 1\]"),
        ({"noise": -1.0}, "dataset.noise=-1.0 must be a number, 0 or more"),
        ({"seed": -1}, "dataset.seed"),
    ],
    lambda **options: load(**(SMALL | options)),
)
