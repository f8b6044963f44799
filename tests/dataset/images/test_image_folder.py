"""Images in folders: exact pixels, the cache, and every error."""

import os

import numpy as np
import pytest
import torch
from PIL import Image

from fedcomp.dataset.check import check
from fedcomp.dataset.images import image_folder
from tests.looped import looped
from tests.raising import raising
from tests.refused import one_line_error

CACHE = ".fedcomp_as_is.npz"


def write_image(path, height=4, width=5, value=0):
    pixels = (np.arange(height * width * 3).reshape(height, width, 3) + value).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return pixels


def filled(root):
    for split in ("train", "test"):
        for place, name in enumerate(("cat/b.png", "cat/a.png", "dog/a.png")):
            write_image(root / split / name, value=10 * place)
    return root


@pytest.fixture
def folder(tmp_path):
    return filled(tmp_path)


def test_classes_and_pixels(folder):
    dataset = image_folder.load(folder=str(folder))
    check(dataset)
    assert dataset.class_names == ("cat", "dog")
    assert dataset.train.y.tolist() == [0, 0, 1]
    assert dataset.input_shape == (3, 4, 5)
    expected = [np.asarray(Image.open(folder / "train" / name)) for name in ("cat/a.png", "cat/b.png", "dog/a.png")]
    assert torch.equal(dataset.train.x, torch.from_numpy(np.stack(expected)))


def test_the_cache_gives_the_same_and_is_not_decoded_again(folder, monkeypatch):
    first = image_folder.load(folder=str(folder))
    assert (folder / "train" / CACHE).exists()
    monkeypatch.setattr(image_folder, "_decode", None)
    again = image_folder.load(folder=str(folder))
    assert torch.equal(first.train.x, again.train.x)
    assert [entry.name for entry in (folder / "train").iterdir() if entry.name.startswith(CACHE)] == [CACHE]


def test_a_changed_file_is_seen(folder):
    image_folder.load(folder=str(folder))
    path = folder / "train" / "dog" / "a.png"
    pixels = write_image(path, value=77)
    os.utime(path, ns=(1, 1))
    assert torch.equal(image_folder.load(folder=str(folder)).train.x[2], torch.from_numpy(pixels))


def test_a_broken_cache_is_made_anew(folder):
    first = image_folder.load(folder=str(folder))
    store = folder / "train" / CACHE
    store.write_bytes(store.read_bytes()[:-200])
    assert torch.equal(image_folder.load(folder=str(folder)).train.x, first.train.x)


def test_without_cache_nothing_is_written(folder):
    image_folder.load(folder=str(folder), cache=False)
    assert not (folder / "train" / CACHE).exists()


def test_a_folder_that_cannot_be_written(folder, monkeypatch):
    monkeypatch.setattr(np, "savez", raising(OSError("No space left on device")))
    assert len(image_folder.load(folder=str(folder)).train) == 3
    assert sorted(entry.name for entry in (folder / "train").iterdir()) == ["cat", "dog"]


def test_other_names_and_sizes(folder):
    (folder / "test").rename(folder / "held")
    write_image(folder / "train" / "dog" / "b.png", 6, 6)
    dataset = image_folder.load(root=str(folder.parent), folder=folder.name, test="held", size=8, name="pets")
    check(dataset)
    assert (dataset.name, tuple(dataset.train.x.shape)) == ("pets", (4, 8, 8, 3))


OF_TEST = ("test/cat/b.png", "test/cat/a.png", "test/dog/a.png")


@looped(
    "images, options, line",
    [
        (["train/dog/b.png"], {}, r"b.png is 6x6, but .*a.png is 4x5: .* set dataset.size to resize them"),
        (OF_TEST, {}, r"images of 'train' are 4x5, of 'test' 6x6; set dataset.size"),
        ((*OF_TEST, "test/fox/a.png"), {}, r"must hold the same class folders, but differ in: fox"),
        ((), {"size": 0}, "dataset.size=0 must be a whole number, 1 or more"),
        ((), {"size": "big"}, "dataset.size=big must be a whole number"),
        ((), {"size": 2.5}, "dataset.size=2.5 must be a whole number"),
        ((), {"owner": "("}, r"dataset.owner='\(' is no regular expression"),
        ((), {"owner": "cat"}, r"dataset.owner='cat' must have one group"),
        ((), {"owner": "(c)(a)"}, r"dataset.owner='\(c\)\(a\)' must have one group"),
        ((), {"owner": r"cat/(\w)"}, r"image .*/train/dog/a.png does not match 'cat.*' \(dataset.owner\)"),
        ((), {"owner": r"/(x*)"}, r"image .*/train/cat/a.png does not match"),
        ((), {"owner": 1}, r"image .*/train/cat/a.png lies in no folder of level 1"),
        ((), {"owner": 0}, r"dataset.owner=0 must be 1 or more levels"),
        ((), {"owner": True}, r"dataset.owner=true must be 1 or more levels"),
    ],
)
def test_what_it_refuses(tmp_path_factory, images, options, line):
    """`images` are of 6 x 6 pixels, all others of 4 x 5."""
    folder = filled(tmp_path_factory.mktemp("images"))
    for name in images:
        write_image(folder / name, 6, 6)
    with pytest.raises(ValueError, match=line):
        image_folder.load(folder=str(folder), **options)


def test_an_image_that_is_none(folder):
    (folder / "train" / "cat" / "c.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"image .*c.png cannot be read .*: repair or delete it"):
        image_folder.load(folder=str(folder))


def test_missing_folders(tmp_path):
    with one_line_error(r"no images in /.*/train .*put them there as CLASS/NAME.jpg"):
        image_folder.load(folder=str(tmp_path))
    (tmp_path / "train" / "cat").mkdir(parents=True)
    with one_line_error(r"no images in /.*/train \(Found no valid file"):
        image_folder.load(folder=str(tmp_path))


def test_grey_images_have_one_channel(tmp_path):
    grey = np.arange(20, dtype=np.uint8).reshape(4, 5)
    for name in ("train/cat/a.png", "train/dog/a.png", "test/cat/a.png", "test/dog/a.png"):
        (tmp_path / name).parent.mkdir(parents=True)
        Image.fromarray(grey).save(tmp_path / name)
    for _ in range(2):  # the second time from the cache
        dataset = image_folder.load(folder=str(tmp_path))
        check(dataset)
        assert dataset.input_shape == (1, 4, 5)
        assert torch.equal(dataset.train.x[0, :, :, 0], torch.from_numpy(grey))
        thrice = image_folder.load(folder=str(tmp_path), channels=3)
        assert thrice.input_shape == (3, 4, 5)
        assert torch.equal(thrice.train.x, dataset.train.x.expand(-1, -1, -1, 3))
    write_image(tmp_path / "test" / "dog" / "b.png")  # one in colour among them
    assert image_folder.load(folder=str(tmp_path)).input_shape == (3, 4, 5)
    with pytest.raises(ValueError, match=r"channels=1 is for grey images, but .*test/dog/b\.png is in colour: take 3"):
        image_folder.load(folder=str(tmp_path), channels=1)
    with pytest.raises(ValueError, match="dataset.channels=2 must be 1, 3, or null"):
        image_folder.load(folder=str(tmp_path), channels=2)


@pytest.mark.parametrize("kind", ["png", "tif", "pgm"])
def test_grey_images_of_16_bits_keep_their_higher_8(tmp_path, kind):
    """Not 255 for all that is above it. Of 32 bits no file says what is white."""
    grey = (np.arange(20, dtype=np.uint16) * 3276).reshape(4, 5)
    for name in ("cat/a", "cat/b", "dog/a", "dog/b"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        if kind == "pgm":  # which older Pillows read but do not write
            (tmp_path / f"{name}.pgm").write_bytes(b"P5 5 4 65535\n" + grey.astype(">u2").tobytes())
        else:
            Image.fromarray(grey).save(tmp_path / f"{name}.{kind}")
    dataset = image_folder.load(folder=str(tmp_path), test_fraction=0.5)
    assert dataset.input_shape == (1, 4, 5)
    assert torch.equal(dataset.train.x[0, :, :, 0], torch.from_numpy((grey // 256).astype(np.uint8)))
    for wide in (grey.astype(np.int32), grey.astype(np.float32)):
        Image.fromarray(wide).save(tmp_path / "dog" / "c.tif")
        with pytest.raises(ValueError, match=r"image .*dog/c.tif has 32 bits a pixel, .*: save it as grey of 8 or 16"):
            image_folder.load(folder=str(tmp_path), test_fraction=0.5)


@pytest.mark.parametrize(
    ("link", "to", "line"),
    [
        ("train/cat/out", "../../../outside", r"link .*/train/cat/out leads out of .*, to .*/outside: copy what it n"),
        ("train/cat/c.png", "../../../outside/o.png", r"link .*/cat/c.png leads out of"),
        ("train/cat/round", "..", r"link .*/cat/round leads to .*/train, whose images would be seen twice"),
        ("train/top", "../..", r"link .*/train/top leads out of"),
        ("train/fox", "dog", r"link .*/train/fox leads to .*/train/dog, whose images would be seen twice: remove it"),
        ("test/cat/c.png", "../../train/cat/a.png", r"link .*/test/cat/c.png leads to .*seen twice"),
        ("train/cat/c.png", "nowhere.png", r"link .*/cat/c.png leads nowhere"),
        ("train/cat/one", "../../pool/one", r"link .*/one/two/one leads to .*/pool/one, whose images would be"),
    ],
)
def test_links_that_lead_out_or_round(folder, link, to, line):
    base = folder / "images"
    base.mkdir()
    for split in ("train", "test"):
        (folder / split).rename(base / split)
    write_image(folder / "outside" / "o.png")
    write_image(base / "pool" / "one" / "p.png")
    write_image(base / "pool" / "two" / "p.png")
    (base / "pool" / "one" / "two").symlink_to("../two")
    (base / "pool" / "two" / "one").symlink_to("../one")
    (base / link).symlink_to(to)
    with one_line_error(line):
        image_folder.load(folder=str(base))


def test_a_test_set_that_is_the_training_set(folder):
    (folder / "test").rename(folder / "old")
    (folder / "test").symlink_to("train")
    with pytest.raises(ValueError, match=r"link .*/test leads to .*/train, whose images would be seen twice"):
        image_folder.load(folder=str(folder))
    assert len(image_folder.load(folder=str(folder), test="train").test) == 3


def test_links_to_images_of_the_folder_itself(folder):
    pixels = write_image(folder / "images" / "pool" / "p.png", value=7)
    for split in ("train", "test"):
        (folder / split).rename(folder / "images" / split)
    (folder / "images" / "train" / "dog" / "b.png").symlink_to("../../pool/p.png")
    (folder / "linked").symlink_to("images")
    dataset = image_folder.load(folder=str(folder / "linked"))
    assert torch.equal(dataset.train.x[-1], torch.from_numpy(pixels))


@pytest.mark.parametrize("owner", [r"/([a-z]+)_\d", 1])
def test_owners_from_names_and_from_folders(tmp_path, owner):
    """By pattern ann_1.png; by level CLASS/ann/1.png."""
    names = ["cat/bob_1", "cat/ann_1", "dog/ann_2", "dog/zoe_1"]
    for name in names:
        image = name if isinstance(owner, str) else name.replace("_", "/")
        for split in ("train", "test"):
            write_image(tmp_path / split / f"{image}.png")
    for _ in range(2):  # decoded, then from the cache
        dataset = image_folder.load(folder=str(tmp_path), owner=owner)
        check(dataset)
        assert dataset.train.y.tolist() == [0, 0, 1, 1]
        assert dataset.train.owner.tolist() == [0, 1, 0, 2]
        assert dataset.test.owner is None


def test_a_folder_of_classes_is_split_by_a_seed_of_its_own(tmp_path):
    for number in range(10):
        write_image(tmp_path / "cat" / f"{'ann' if number % 2 else 'bob'}_{number}.png", value=number)
        if number < 3:
            write_image(tmp_path / "dog" / f"zoe_{number}.png", value=100 + number)
    splits = []
    for seed in (0, 0, 1):
        dataset = image_folder.load(folder=str(tmp_path), test_fraction=0.2, split_seed=seed, owner=r"/([a-z]+)_")
        check(dataset)
        assert dataset.train.y.tolist() == [0] * 8 + [1] * 2
        assert dataset.test.y.tolist() == [0, 0, 1]
        firsts = [samples.x[:, 0, 0, 0].tolist() for samples in (dataset.train, dataset.test)]
        assert sorted(firsts[0] + firsts[1]) == [*range(10), 100, 101, 102]
        owners = {False: {0: 1, 1: 0}, True: {0: 2, 1: 2}}
        for samples, first in zip((dataset.train, dataset.test), firsts):
            assert samples.owner.tolist() == [owners[value >= 100][value % 2] for value in first]
        splits.append(firsts[1])
    assert splits[0] == splits[1] != splits[2]
    assert len(image_folder.data_files(folder=str(tmp_path), test_fraction=0.2)) == 13


def test_a_split_that_cannot_be(folder):
    for options, line in (
        ({}, "dataset.test_fraction=0.5 is for a folder of classes, but .* holds 'train' and 'test': leave it out, or"),
        ({"folder": f"{folder}/train"}, "needs two samples or more of each class, but class number 1 has one"),
        ({"test_fraction": 0}, r"dataset.test_fraction=0 must be a number in \(0, 1\)"),
        ({"split_seed": -1}, "dataset.split_seed=-1 must be a whole number, 0 or more"),
        ({"test_fraction": None, "folder": f"{folder}/train"}, r"dataset.test_fraction=0.2 holds images out"),
    ):
        where = f"{folder}/train" if options and "folder" not in options else str(folder)
        with pytest.raises(ValueError, match=line):
            image_folder.load(**({"folder": where, "test_fraction": 0.5} | options))
