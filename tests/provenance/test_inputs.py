"""Which files are a user's own code and data, found by reading; fingerprints of files, by content."""

import importlib
import os
import sys
import time
from pathlib import Path

import pytest
import yaml

from fedcomp.core.folders import CONF
from fedcomp.dataset.images import image_folder
from fedcomp.provenance import code, files
from fedcomp.provenance.code import code_files, code_parts
from fedcomp.provenance.data import data_parts
from fedcomp.provenance.files import fingerprints
from fedcomp.records.provenance import differences
from tests.outside import write_files
from tests.raising import raising


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    code.source.cache_clear()
    content = {
        "quarter_.py": "import beside_, torch, json\nraise SystemExit('nothing is executed')\n",
        "beside_.py": "from lab_.deep import tools\nimport missing_\n",
        **dict.fromkeys(("unused_.py", "lab_/__init__.py", "lab_/shared.py", "lab_/other.py"), ""),
        "lab_/deep/__init__.py": "from .. import shared\n",
        "lab_/deep/tools.py": "from .more import thing\nfrom ..shared import thing\nfrom fedcomp.wire import Link\n",
        "lab_/deep/more.py": "import beside_\nthing = 1\n",
        "space_/one.py": "from space_ import two\n",
        "space_/two.py": "this is no Python",
    }
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return write_files(tmp_path, content)


LAB = ["beside_.py", "lab_/__init__.py", "lab_/deep/__init__.py", "lab_/deep/more.py", "lab_/deep/tools.py"]


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("quarter_.Quarter", [*LAB, "lab_/shared.py", "quarter_.py"]),
        ("lab_.shared.Thing.make", ["lab_/__init__.py", "lab_/shared.py"]),
        ("space_.one.f", ["space_/one.py", "space_/two.py"]),
        *((name, []) for name in ("missing_.f", "torch.nn.Linear", "PIL.Image.open", "collections.OrderedDict")),
        ("fedcomp.compressor.sparsifiers.topk.TopK", []),
    ],
)
def test_own_files(folder: Path, target: str, names: list[str]) -> None:
    nested = {"compressor": {"inner": [{"_target_": target}]}}
    assert list(code_parts(nested)) == sorted(names)
    assert all(path.is_relative_to(folder) for path in code_files(nested).values())
    assert code_parts({"tracker": {"_target_": target}}) == {}, "a view of a run changes no number"


def test_a_package_installed_anywhere_is_not_the_users(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by `pip install --target`, into a folder that PYTHONPATH names."""
    package = {"pack_/__init__.py": "", "pack_-1.0.dist-info/METADATA": "Name: pack_\nVersion: 1.0\n"}
    bought = write_files(folder / "bought", {**package, "loose_.py": "import pack_\n"})
    monkeypatch.syspath_prepend(str(bought))
    asked = []
    monkeypatch.setattr(code.sysconfig, "get_path", lambda name: asked.append(name) or "/nowhere")
    config = {"model": [{"_target_": "pack_.Net"}, {"_target_": "loose_.Net"}, {"_target_": "quarter_.Quarter"}]}
    assert sorted(code_parts(config)) == sorted([*LAB, "lab_/shared.py", "loose_.py", "quarter_.py"])
    assert len(asked) == 4, "once for each of Python's folders"


def test_a_process_has_the_code_that_it_began_with(folder: Path) -> None:
    config = {"model": {"_target_": "lab_.shared.f"}}
    before = code_parts(config)
    (folder / "lab_" / "shared.py").write_text("# edited\n")
    assert code_parts(config) == before
    code.source.cache_clear()
    assert code_parts(config) != before


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


def test_files_may_be_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.csv").write_text("1,2")
    monkeypatch.setattr(image_folder, "data_files", lambda path: path)
    of = {"_target_": f"{image_folder.__name__}.load"}
    named = data_parts({**of, "path": tmp_path / "own.csv"}, never)
    for path in (str(tmp_path / "own.csv"), [str(tmp_path / "own.csv")]):
        assert data_parts({**of, "path": path}, never) == named


def test_images_are_those_that_torchvision_finds(tmp_path: Path) -> None:
    from torchvision.datasets.folder import IMG_EXTENSIONS, make_dataset

    assert set(image_folder.EXTENSIONS) == set(IMG_EXTENSIONS)
    names = "train/a/1.PNG", "train/a/deep/2.jpg", "train/a/notes.txt", "train/a/.fedcomp_8.npz", "test/a/3.jpg"
    write_files(tmp_path, dict.fromkeys(names, ""))
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


@pytest.fixture
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What was really read, one list a time; everything is worth remembering, in a home of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "LARGE_BYTES", 1)
    monkeypatch.setattr(files, "CLOCK_SECONDS", -1.0)
    seen: list[list[str]] = []
    read = files._read

    def counted(paths, names):
        seen.append(list(names))
        return read(paths, names)

    monkeypatch.setattr(files, "_read", counted)
    return seen


def _write(folder: Path, **content: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in content.items():
        (folder / name).write_text(text)
    return [folder / name for name in content]


def test_content_counts_and_place_does_not(tmp_path: Path) -> None:
    first = fingerprints(_write(tmp_path / "one", a="1", b="2"))
    assert first == fingerprints(_write(tmp_path / "other", a="1", b="2"))
    assert list(differences(first, fingerprints(_write(tmp_path / "one", a="1", b="3")))) == ["b has changed"]
    assert list(differences(first, fingerprints(_write(tmp_path / "third", a="1", c="2")))) == ["b is gone", "c is new"]
    assert fingerprints([tmp_path / "nowhere"]) == {}


def test_large_data_are_read_once(tmp_path: Path, reads: list[list[str]]) -> None:
    paths = _write(tmp_path / "data", a="1", b="2")
    first = fingerprints(paths)
    assert fingerprints(paths) == first
    assert len(reads) == 1
    before = os.stat(paths[1])
    paths[1].write_text("3")
    os.utime(paths[1], ns=(before.st_atime_ns, before.st_mtime_ns))  # same size, same time: its inode's time tells
    assert list(differences(first, fingerprints(paths))) == ["b has changed"]
    assert len(reads) == 2


def test_what_was_just_written_is_not_remembered(tmp_path: Path, reads, monkeypatch) -> None:
    """A second write within the clock's tick would go unseen."""
    monkeypatch.setattr(files, "CLOCK_SECONDS", 3600.0)
    paths = _write(tmp_path / "data", a="1")
    fingerprints(paths)
    fingerprints(paths)
    assert len(reads) == 2


@pytest.mark.parametrize("home", ["", "relative", "/dev/null/no", "broken"])
def test_no_home_is_no_hindrance(tmp_path: Path, reads, monkeypatch, home: str) -> None:
    paths = _write(tmp_path / "data", a="1")
    if home == "broken":
        first = fingerprints(paths)
        (store,) = (tmp_path / "cache").rglob("*.json")
        store.write_text("{")
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", home)
        monkeypatch.delenv("HOME")
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)
        first = fingerprints(paths)
    assert fingerprints(paths) == first
    assert len(reads) == 2


def test_many_files_are_named_by_folder(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(files, "MAX_FILES", 3)
    paths = [*_write(tmp_path / "data" / "cat", a="1", b="2"), *_write(tmp_path / "data" / "dog", a="3", b="4")]
    first = fingerprints(paths)
    assert {name: (part.files, part.bytes) for name, part in first.items()} == {"cat": (2, 2), "dog": (2, 2)}
    more = fingerprints([*paths, *_write(tmp_path / "data" / "dog", c="5")])
    assert list(differences(first, more)) == ["dog has 3 files instead of 2"]
    _write(tmp_path / "data" / "cat", a="9")
    assert "cat has changed" in differences(first, fingerprints(paths))


def test_small_data_leave_nothing_behind(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    paths = _write(tmp_path / "data", a="1")
    os.utime(paths[0], (time.time() - 3600,) * 2)
    fingerprints(paths)
    assert not (tmp_path / "cache").exists()
