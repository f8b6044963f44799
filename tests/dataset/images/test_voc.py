"""PascalVOC from a small folder of its form: what is read, FedSeg's form of it, what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedcomp.dataset.check import check
from fedcomp.dataset.images.voc import CLASSES, data_files, load
from fedcomp.partition.labels import Labels
from fedcomp.random.keys import Key
from tests.left import record
from tests.refused import one_line_error

WIDE, HIGH = 12, 8


def write(root: Path, name: str, mask: np.ndarray, mode: str = "P") -> None:
    """A picture whose red is ten times its class, stored without loss, and its mask."""
    base = root / "VOCdevkit" / "VOC2012"
    for folder in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (base / folder).mkdir(parents=True, exist_ok=True)
    picture = np.zeros((*mask.shape, 3), np.uint8)
    picture[..., 0] = 10 * np.where(mask == 255, 0, mask)
    Image.fromarray(picture).save(base / "JPEGImages" / f"{name}.jpg", format="PNG")
    image = Image.fromarray(mask)
    if mode == "P":
        image.putpalette([value for number in range(256) for value in (number, 255 - number, 7)])
    else:
        image = image.convert(mode)
    image.save(base / "SegmentationClass" / f"{name}.png")


def lists(root: Path, train: list[str], test: list[str]) -> None:
    folder = root / "VOCdevkit" / "VOC2012" / "ImageSets" / "Segmentation"
    for name, names in (("train", train), ("val", test)):
        (folder / f"{name}.txt").write_text("\n".join(names) + "\n")


def mask(number: int) -> np.ndarray:
    """Background, then a column of no class, class 1 + number % 4 on the right, class 20 in the lower right corner."""
    found = np.zeros((HIGH, WIDE), np.uint8)
    found[:, 5] = 255
    found[:, 6:] = 1 + number % 4
    found[6:, 8:] = 20
    return found


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    for number in range(10):
        write(tmp_path, f"p{number}", mask(number))
    lists(tmp_path, [f"p{number}" for number in range(8)], ["p8", "p9"])
    return tmp_path


def test_pictures_and_masks_are_resized_and_cropped_alike(voc: Path) -> None:
    data = load(str(voc), size=8)
    check(data)
    assert (len(data.train), len(data.test), data.num_outputs) == (8, 2, 21)
    assert data.class_names == CLASSES
    for number, (x, y) in enumerate(zip(data.train.x, data.train.y)):
        assert y.tolist() == mask(number)[:, 2:10].tolist(), "the centre of the longer side"
        assert torch.equal(x[..., 0], 10 * torch.where(y == 255, 0, y))
    half = load(str(voc), size=4)
    assert set(half.train.y.unique().tolist()) <= {0, 1, 2, 3, 4, 20, 255}
    assert half.train.x.shape == (8, 4, 4, 3)
    assert data.labels.tolist() == [1, 2, 3, 4] * 2, "the background is set aside"


def test_fedsegs_form(voc: Path) -> None:
    """A picture once for each class, with this class only; clients of one class each; the test keeps all classes."""
    data = load(str(voc), size=8, erased=True)
    check(data)
    assert data.num_outputs == 20
    assert len(data.train) == 16
    assert data.labels.tolist() == [label for number in range(8) for label in (number % 4, 19)]
    for number, y in enumerate(data.train.y):
        label = int(data.labels[number])
        assert set(y.unique().tolist()) == {label, 255}
        whole = torch.from_numpy(mask(number // 2)[:, 2:10])
        assert torch.equal(y != 255, whole == label + 1)
    assert set(data.test.y.unique().tolist()) == {0, 1, 19, 255}
    parts = Labels(1).split(data.labels, 16, 10, Key(("p",)))
    assert all(len(data.labels[part].unique()) == 1 for part in parts)
    assert sorted(torch.cat(parts).tolist()) == list(range(16))


def test_the_files_that_are_read(voc: Path) -> None:
    files = data_files(str(voc))
    assert len(files) == len(set(files)) == 2 + 2 * 10
    assert all(file.is_file() for file in files)


def _spoil(root: Path, how: str) -> None:
    base = root / "VOCdevkit" / "VOC2012"
    if how == "value":
        wrong = mask(3)
        wrong[0, 0] = 21
        write(root, "p3", wrong)
    elif how == "size":
        Image.fromarray(mask(3)[:, :11]).save(base / "SegmentationClass" / "p3.png")
    elif how == "colour":
        write(root, "p3", mask(3), "RGB")
    elif how == "broken":
        file = base / "JPEGImages" / "p3.jpg"
        file.write_bytes(file.read_bytes()[:60])
    elif how == "missing":
        (base / "SegmentationClass" / "p3.png").unlink()
    elif how == "empty":
        lists(root, ["p0"], [])
    else:
        (base / "ImageSets" / "Segmentation" / "val.txt").unlink()


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ("value", r"SegmentationClass/p3.png has a pixel of value 21, but classes are 0 to 20, and 255 for none"),
        ("size", r"SegmentationClass/p3.png is 11x8, but its picture is 12x8: both must be alike"),
        ("colour", r"SegmentationClass/p3.png is an image of mode RGB, but a mask has one value a pixel"),
        ("broken", r"JPEGImages/p3.jpg cannot be read \(.*\): replace it"),
        ("missing", r"SegmentationClass/p3.png is missing: a list names it"),
        ("empty", r"Segmentation/val.txt names no picture"),
        ("no list", r"cannot read .*/val.txt \(there is no such file\): unpack PascalVOC's archive"),
    ],
)
def test_what_it_refuses(voc: Path, how: str, line: str) -> None:
    _spoil(voc, how)
    with one_line_error(line):
        load(str(voc), size=8)


def test_a_run_from_the_command_line(fedcomp, voc: Path, capsys: pytest.CaptureFixture) -> None:
    network = ("model=bisenetv2", "model.width=0.05", "model.boosters=false", "partition=labels", "num_clients=4")
    options = ("dataset=voc", f"dataset.root={voc}", "dataset.size=32", *network, "partition.labels_per_client=1")
    assert fedcomp(*options, "rounds=1", "threads=1", "dataset.flip=true") == 0
    last = record(voc)[-1]
    assert {"test/miou", "test/accuracy", "test/loss"} <= last.keys()
    assert 0 <= last["test/miou"] <= 1
    _spoil(voc, "value")
    assert fedcomp(*options, "rounds=2") == 1
    error = capsys.readouterr().err
    assert "p3.png has a pixel of value 21" in error
    assert "Traceback" not in error
