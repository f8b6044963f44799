"""Every dataset says which files it reads, or that its options alone make it."""

import importlib
from pathlib import Path

import pytest
import yaml

from fedcomp.core.folders import CONF
from fedcomp.dataset.images import image_folder
from fedcomp.provenance.data import data_parts
from tests.raising import raising

CONFIGS = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((CONF / "dataset").glob("*.yaml"))}


never = raising(AssertionError("its files are known: nothing is to be loaded"))


@pytest.mark.parametrize("name", CONFIGS)
def test_every_dataset_names_its_files(name: str, tmp_path: Path) -> None:
    lists = tmp_path / "VOCdevkit" / "VOC2012" / "ImageSets" / "Segmentation"  # which name voc's other files
    lists.mkdir(parents=True)
    for split in ("train", "val"):
        (lists / f"{split}.txt").write_text("2007_000032\n")
    options = {**CONFIGS[name], "root": str(tmp_path)}
    module = importlib.import_module(options.pop("_target_").rpartition(".")[0])
    paths = module.data_files(**options)
    assert all(isinstance(path, Path) and path.is_absolute() for path in paths)
    for path in paths:
        assert path.is_relative_to(tmp_path) or path.is_file()


def test_a_file_for_each_torchvision_source(tmp_path: Path) -> None:
    for name, number in (("mnist", 4), ("fashion_mnist", 4), ("cifar10", 7), ("cifar100", 3), ("svhn", 2)):
        options = {**CONFIGS[name], "root": str(tmp_path)}
        paths = importlib.import_module(options["_target_"].rpartition(".")[0]).data_files(**options)
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(path.name)
        parts = data_parts(options, never)
        assert len(parts) == number
        paths[-1].write_text("other")
        assert data_parts(options, never) != parts


def test_images_are_those_that_torchvision_finds(tmp_path: Path) -> None:
    from torchvision.datasets.folder import IMG_EXTENSIONS, make_dataset

    assert set(image_folder.EXTENSIONS) == set(IMG_EXTENSIONS)
    for name in ("train/a/1.PNG", "train/a/deep/2.jpg", "train/a/notes.txt", "train/a/.fedcomp_8.npz", "test/a/3.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = image_folder.data_files(root=str(tmp_path), folder=".")
    both = [*make_dataset(tmp_path / "train", {"a": 0}, IMG_EXTENSIONS)]
    both += make_dataset(tmp_path / "test", {"a": 0}, IMG_EXTENSIONS)
    assert sorted(map(str, found)) == sorted(str(Path(path)) for path, _ in both)


def test_a_folder_that_holds_itself_is_gone_through_once(tmp_path: Path) -> None:
    (tmp_path / "train" / "a").mkdir(parents=True)
    (tmp_path / "train" / "a" / "1.png").touch()
    (tmp_path / "train" / "a" / "again").symlink_to(tmp_path / "train")
    assert len(image_folder.data_files(root=str(tmp_path), folder=".")) == 1


def test_vectors_of_a_file_and_of_a_rule(tmp_path: Path) -> None:
    assert data_parts({**CONFIGS["vectors"]}, never) == {}
    (tmp_path / "mine.csv").write_text("1,2\n")
    options = {**CONFIGS["vectors"], "kind": "file", "path": "mine.csv", "root": str(tmp_path)}
    assert list(data_parts(options, never)) == ["mine.csv"]
