"""Data sets saved on disk by Hugging Face's library: with the library where it is installed, and with a stand-in."""

import logging
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from fedcomp.dataset import huggingface
from fedcomp.dataset.check import check
from fedcomp.dataset.texts import text
from tests.refused import one_line_error


@dataclass
class Value:
    dtype: str


@dataclass
class ClassLabel:
    names: list[str]
    dtype: str = "int64"


@dataclass
class Picture:
    dtype: str = "PIL.Image.Image"


Picture.__name__ = "Image"


@dataclass
class Split:
    """What is used of a `datasets.Dataset`."""

    features: dict[str, Any]
    columns: dict[str, list[Any]] = field(repr=False)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key: Any) -> Any:
        return self.columns[key] if isinstance(key, str) else {name: own[key] for name, own in self.columns.items()}


class StandIn:
    """Keeps what it saves in memory."""

    Value, ClassLabel, Image = Value, ClassLabel, Picture

    def __init__(self) -> None:
        self.saved: dict[str, Any] = {}

    def save(self, folder: Any, splits: Any, features: dict[str, Any]) -> None:
        folder.mkdir()
        built = {name: Split(features, columns) for name, columns in splits.items()}
        self.saved[str(folder)] = built.get("", built)

    def load_from_disk(self, path: str) -> Any:
        if path not in self.saved:
            raise FileNotFoundError(f"Directory {path} is neither a Dataset directory\nnor another")
        return self.saved[path]


def _real() -> Any:
    library = pytest.importorskip("datasets")

    def save(folder: Any, splits: Any, features: dict[str, Any]) -> None:
        typed = library.Features(features)
        built = {name: library.Dataset.from_dict(columns, features=typed) for name, columns in splits.items()}
        (built[""] if "" in built else library.DatasetDict(built)).save_to_disk(str(folder))

    return SimpleNamespace(save=save, Value=library.Value, ClassLabel=library.ClassLabel, Image=library.Image)


@pytest.fixture(params=["stand-in", "datasets"])
def library(request, monkeypatch):
    if request.param == "datasets":
        return _real()
    standin = StandIn()
    monkeypatch.setitem(sys.modules, "datasets", standin)
    return standin


def picture(value: int, mode: str = "L", size: int = 4) -> Image.Image:
    return Image.new(mode, (size, size), value if mode == "L" else (value, 0, 0))


def test_pictures_of_two_splits(library, tmp_path):
    features = {"image": library.Image(), "label": library.ClassLabel(names=["cat", "dog"])}
    features |= {"who": library.Value("string")}
    train = {"image": [picture(1), picture(2), picture(3)], "label": [1, 0, 1], "who": ["b", "a", "b"]}
    test = {"image": [picture(4)], "label": [0], "who": ["c"]}
    library.save(tmp_path / "d", {"train": train, "test": test}, features)
    dataset = huggingface.load(str(tmp_path / "d"), owner="who")
    check(dataset)
    assert (dataset.class_names, dataset.input_shape) == (("cat", "dog"), (1, 4, 4))
    assert dataset.train.x[:, 0, 0, 0].tolist() == [1, 2, 3]
    assert (dataset.train.y.tolist(), dataset.test.y.tolist()) == ([1, 0, 1], [0])
    assert (dataset.train.owner.tolist(), dataset.test.owner.tolist()) == ([1, 0, 1], [2])
    assert huggingface.load("d", root=str(tmp_path), size=8, channels=3).input_shape == (3, 8, 8)
    for options, line in (
        ({"train": "training"}, r"dataset.train=training is no split of .*/d \(there are: train, test\)"),
        ({"owner": "whom"}, r"dataset.owner=whom is no column of .*/d \(there are: who, "),
        ({"input": "label"}, "dataset.input=label holds ClassLabel.*, but must hold pictures or texts"),
        ({"channels": 2}, "dataset.channels=2 must be 1, 3, or null"),
    ):
        with pytest.raises(ValueError, match=line):
            huggingface.load(str(tmp_path / "d"), **options)


def test_pictures_of_one_split_are_held_out_by_class(library, tmp_path):
    features = {"image": library.Image(), "label": library.Value("string")}
    pictures = [picture(number, "RGB") for number in range(10)]
    library.save(tmp_path / "d", {"": {"image": pictures, "label": ["x"] * 5 + ["y"] * 5}}, features)
    dataset = huggingface.load(str(tmp_path / "d"), target="label")
    assert (dataset.train.y.tolist(), dataset.test.y.tolist()) == ([0] * 4 + [1] * 4, [0, 1])
    assert sorted(torch.cat([dataset.train.x, dataset.test.x])[:, 0, 0, 0].tolist()) == list(range(10))
    with pytest.raises(ValueError, match=r"dataset=huggingface needs dataset.target, the column to predict"):
        huggingface.load(str(tmp_path / "d"))


def test_a_table(library, tmp_path):
    features = {"age": library.Value("float64"), "city": library.Value("string"), "price": library.Value("float32")}
    train = {"age": [20.0, None, 40.0], "city": ["Ulm", "Bonn", None], "price": [1.0, 2.0, 3.0]}
    test = {"age": [None, 50.0], "city": ["Bonn", "Ulm"], "price": [4.0, 5.0]}
    library.save(tmp_path / "d", {"train": train, "test": test}, features)
    options = {"target": "price", "scaling": "none", "target_scaling": "none"}
    dataset = huggingface.load(str(tmp_path / "d"), missing="impute", **options)
    check(dataset)
    assert dataset.task == "regression"
    assert (dataset.train.y.tolist(), dataset.test.y.tolist()) == ([[1], [2], [3]], [[4], [5]])
    assert dataset.train.x.tolist() == [[20, 0, 1], [30, 1, 0], [40, 0, 0]]
    assert dataset.test.x.tolist() == [[30, 1, 0], [50, 0, 1]], "the mean is that of the training rows"
    dropped = huggingface.load(str(tmp_path / "d"), missing="drop", features=["age"], **options)
    assert (dropped.train.y.tolist(), dropped.test.y.tolist()) == ([[1], [3]], [[5]])
    classes = huggingface.load(str(tmp_path / "d"), target="city", missing="drop", features=["price"])
    assert (classes.task, classes.class_names) == ("classification", ("Bonn", "Ulm"))
    with pytest.raises(ValueError, match="row 1 of the training split, column 'age': '' is no number"):
        huggingface.load(str(tmp_path / "d"), **options)


def test_the_next_byte_of_texts(library, tmp_path, caplog):
    features = {"text": library.Value("string"), "who": library.Value("string")}
    texts = {"text": ["abcdefgh", "ab", "äbcd"], "who": ["x", "y", "z"]}
    library.save(tmp_path / "d", {"train": texts, "test": texts}, features)
    with caplog.at_level(logging.INFO, "fedcomp"):
        dataset = huggingface.load(str(tmp_path / "d"), owner="who", window=3, input="text")
    check(dataset)
    assert (dataset.task, dataset.vocab_size, dataset.num_outputs) == ("next_token", 256, 256)
    words = ["abc", "def", "ä".encode().decode("latin1") + "b"]
    assert [bytes(row.tolist()).decode("latin1") for row in dataset.train.x] == words
    assert bytes(dataset.train.y[0].tolist()) == b"bcd"
    assert dataset.train.owner.tolist() == [0, 0, 2]
    assert caplog.messages[0] == "1 of 3 texts have no more than dataset.window=3 bytes and are left out"
    with pytest.raises(ValueError, match="no text has more than dataset.window=80 bytes"):
        huggingface.load(str(tmp_path / "d"), input="text")


def test_classes_of_texts_and_texts_that_are_held_out(library, tmp_path):
    features = {"text": library.Value("string"), "label": library.ClassLabel(names=["bad", "good"])}
    texts = {"text": ["no", "never again", "yes", "yes"], "label": [0, 0, 1, 1]}
    library.save(tmp_path / "d", {"": texts}, features)
    dataset = huggingface.load(str(tmp_path / "d"), input="text", window=4)
    check(dataset)
    assert (dataset.task, dataset.train.y.tolist(), dataset.class_names) == ("classification", [0, 1], ("bad", "good"))
    assert dataset.padding_token == 0
    rows = {bytes(row.tolist()) for samples in (dataset.train, dataset.test) for row in samples.x}
    assert rows == {b"no\0\0", b"neve", b"yes\0"}
    five = {"": {"text": ["aaaa", "bbbb", "cccc", "dddd", "eeee"]}}
    library.save(tmp_path / "e", five, {"text": library.Value("string")})
    held = huggingface.load(str(tmp_path / "e"), window=2)
    assert (len(held.train), len(held.test)) == (4, 1)
    assert set(held.train.x.flatten().tolist()).isdisjoint(held.test.x.flatten().tolist())


def test_what_is_missing(library, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"no folder /.*/d: datasets.load_dataset\(...\).save_to_disk"):
        huggingface.load(str(tmp_path / "d"))
    (tmp_path / "e").mkdir()
    with one_line_error(r"/e is no data set that the library datasets has saved \(Dir.*\): save"):
        huggingface.load(str(tmp_path / "e"))
    with pytest.raises(ValueError, match="dataset=huggingface needs dataset.path, the folder"):
        huggingface.load(None)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r"/e is read by the library datasets: pip install 'fedcomp\[hf\]'"):
        huggingface.load(str(tmp_path / "e"))


def test_its_files(tmp_path):
    (tmp_path / "d" / "train").mkdir(parents=True)
    for name in ("dataset_dict.json", "train/data.arrow"):
        (tmp_path / "d" / name).write_bytes(b"")
    found = huggingface.data_files("d", root=str(tmp_path))
    assert [file.relative_to(tmp_path / "d").as_posix() for file in found] == ["dataset_dict.json", "train/data.arrow"]


def test_a_row_of_texts_without_a_class_is_named(library, tmp_path):
    features = {"say": library.Value("string"), "kind": library.ClassLabel(names=["a", "b"])}
    for missing in (None, -1):
        columns = {"say": ["x", "y"], "kind": [1, missing]}
        library.save(tmp_path / f"{missing}", {"train": columns, "test": columns}, features)
        with one_line_error(r"row 1 of train: field 'kind' \(dataset.label\) is None, but must be a text"):
            text.load(str(tmp_path / f"{missing}"), prompt="say", label="kind", test="test", length=4)
