"""Texts of one's own: what is an input, a target, padding; packed rows; classes; owners; and every damaged file."""

import gzip
import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from fedcomp.check.world import model_of
from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from fedcomp.dataset.check import check
from fedcomp.dataset.contract import NO_TARGET
from fedcomp.dataset.texts import text
from tests.looped import looped
from tests.refused import one_line_error

ROWS = [
    {"ask": "1+1", "say": "2", "who": "ann", "kind": "sum"},
    {"ask": "2*3", "say": "6!", "who": "bob", "kind": "product"},
    {"ask": "2+2", "say": "4", "who": "ann", "kind": "sum"},
    {"ask": "a very long question", "say": "?", "who": "bob", "kind": "product"},
]
ANSWERS = {"prompt": "ask", "answer": "say", "separator": "=", "length": 8, "test": "same.jsonl"}


def jsonl(folder: Path, rows: list[dict] = ROWS, name: str = "same.jsonl") -> str:
    (folder / name).write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    return name


def load(folder: Path, path: str | None = None, **options):
    return text.load(path or jsonl(folder), root=str(folder), **options)


def shown(tokens: torch.Tensor) -> str:
    """Bytes as they are, padding _, the end |, no target ."""
    return "".join({0: "_", 1: "|", NO_TARGET: "."}.get(token) or chr(token - 3) for token in tokens.tolist())


def test_answers_and_the_end_are_the_targets(tmp_path):
    dataset = load(tmp_path, **ANSWERS)
    check(dataset)
    assert (dataset.vocab_size, dataset.num_outputs, dataset.some_tokens) == (259, 259, True)
    assert [shown(row) for row in dataset.train.x] == ["1+1=2___", "2*3=6!__", "2+2=4___"]
    assert [shown(row) for row in dataset.train.y] == ["...2|...", "...6!|..", "...4|..."]
    assert dataset.train.owner is None


def test_without_prompts_all_but_the_first_token_is_a_target(tmp_path):
    dataset = load(tmp_path, answer="ask", length=5, test="same.jsonl")
    assert [shown(row) for row in dataset.train.x] == ["1+1__", "2*3__", "2+2__", "a ver"]
    assert [shown(row) for row in dataset.train.y] == ["+1|..", "*3|..", "+2|..", " very"]


def test_packed_rows_of_an_owner(tmp_path):
    dataset = load(tmp_path, jsonl(tmp_path, ROWS[:3]), **ANSWERS | {"length": 7}, owner="who", packing=True)
    check(dataset)
    assert [shown(row) for row in dataset.train.x] == ["1+1=2|2", "+2=4___", "2*3=6!_"]
    assert [shown(row) for row in dataset.train.y] == ["...2|..", "..4|...", "...6!|."]
    assert dataset.train.owner.tolist() == [0, 0, 1]


def test_owners_are_clients_and_rows_are_held_out_by_a_seed(tmp_path):
    rows = [{"say": f"line {number}", "who": f"client {number % 4}"} for number in range(40)]
    own = {"answer": "say", "owner": "who", "test_fraction": 0.25}
    dataset = load(tmp_path, jsonl(tmp_path, rows), **own)
    assert (len(dataset.train), len(dataset.test)) == (30, 10)
    said = {shown(row[:7]): owner for part in (dataset.train, dataset.test) for row, owner in zip(part.x, part.owner)}
    names = [f"client {number % 4}" for number in range(40)]
    assert len({(names[int(line[5:].strip("_"))], int(owner)) for line, owner in said.items()}) == 4
    again, other = load(tmp_path, "same.jsonl", **own), load(tmp_path, "same.jsonl", **own, split_seed=1)
    assert torch.equal(dataset.test.x, again.test.x)
    assert not torch.equal(dataset.test.x, other.test.x)


def test_classes(tmp_path):
    dataset = load(tmp_path, prompt="ask", label="kind", owner="who", length=4, test="same.jsonl")
    check(dataset)
    assert (dataset.task, dataset.num_outputs, dataset.class_names) == ("classification", 2, ("product", "sum"))
    assert [shown(row) for row in dataset.train.x] == ["1+1_", "2*3_", "2+2_", "a ve"]
    assert dataset.train.y.tolist() == [1, 0, 1, 0]
    assert dataset.padding_token == 0


READER = """
from torch import nn
class Reader(nn.Module):
    def __init__(self, num_outputs, vocab_size, padding_token):
        super().__init__()
        self.words = nn.Embedding(vocab_size, num_outputs, padding_idx=padding_token)
    def forward(self, tokens):
        return self.words(tokens).mean(1)
"""


def test_a_model_of_ones_own_is_told_the_padding(tmp_path, monkeypatch):
    (tmp_path / "padding_reader.py").write_text(READER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    data = f"dataset=text dataset.path={jsonl(tmp_path)} dataset.prompt=ask dataset.label=kind dataset.length=4"
    words = f"{data} dataset.test=same.jsonl model=module model.path=padding_reader.Reader num_clients=2"
    simulation, _ = build_simulation(compose(words.split()), torch.device("cpu"))
    assert simulation.model.module.words.padding_idx == 0
    assert model_of(simulation.model.module.__class__, simulation.dataset).module.words.padding_idx == 0


def test_the_same_from_csv_and_compressed(tmp_path):
    lines = ["ask,say", '"1+1","2"', "2*3,6!", '"two\nlines",yes']
    (tmp_path / "same.csv").write_text("\n".join(lines))
    with gzip.open(tmp_path / "same.csv.gz", "wt") as file:
        file.write("\n".join(lines))
    jsonl(tmp_path, [ROWS[0], ROWS[1], {"ask": "two\nlines", "say": "yes"}])
    options = {"prompt": "ask", "answer": "say", "length": 20, "test": "same.csv"}
    three = [load(tmp_path, name, **options) for name in ("same.csv", "same.csv.gz", "same.jsonl")]
    for other in three[1:]:
        assert torch.equal(three[0].train.x, other.train.x)
        assert torch.equal(three[0].train.y, other.train.y)


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("a.jsonl", b'{"say": "x"}\n{"say": \n', r"a.jsonl, line 2: no JSON \(.*\): repair or drop it"),
        ("a.jsonl", b'\n["say"]\n', r"a.jsonl, line 2: \[\"say\"\] is no JSON object"),
        ("a.jsonl", b'{"say": "x"}\n{"tell": "x"}\n', r"a.jsonl, line 2 has no field 'say' \(dataset.answer\)"),
        ("a.jsonl", b'{"say": null}\n', r"a.jsonl, line 1: field 'say' \(dataset.answer\) is None, but must be a text"),
        ("a.jsonl", b'{"say": "x"}\n{"say": "\xff"}\n', r"a.jsonl, line 2: no text in UTF-8"),
        ("a.jsonl", b"", r"a.jsonl has no rows"),
        ("a.jsonl.gz", gzip.compress(b'{"say": "x"}\n' * 99, mtime=0)[:-9], r"a.jsonl.gz, after line \d+: damaged"),
        ("a.csv", b"say,who\nx\n", r"a.csv, line 2: 1 cells, but the header names 2"),
        ("a.csv", b"say,say\nx,y\n", r"a.csv, line 1 names a field twice: say, say"),
        ("a.csv", b'say\n"x\n', r"a.csv, line 2: no CSV"),
        ("a.txt", b"x", r"a.txt is of no kind that dataset=text reads: .jsonl, .csv"),
        (None, b"", r"no file .*a.jsonl: put it there"),
    ],
)
def test_damaged_files(tmp_path, name, content, line):
    if name is not None:
        (tmp_path / name).write_bytes(content)
    with one_line_error(line):
        load(tmp_path, name or "a.jsonl", answer="say", test=name)


@looped(
    "options, line",
    [
        ({}, r"needs dataset.answer, the field of the text to predict, or dataset.label"),
        ({"label": "kind"}, r"dataset.label=kind is the class of the text in dataset.prompt"),
        ({"label": "kind", "prompt": "ask", "answer": "say"}, r"and neither dataset.answer nor dataset.packing"),
        ({"answer": "say", "length": 1}, r"dataset.length=1 must be a whole number, 2 or more"),
        (ANSWERS | {"length": 3}, r"no training row of .* has a target within dataset.length=3 tokens"),
        ({"answer": "say", "tokenizer": "gpt2"}, r"dataset.tokenizer=gpt2: there is no folder .*/gpt2; give the model"),
        ({"prompt": "ask", "label": "kind", "test": "other.jsonl"}, r"line 1: no training row has the class 'root'"),
    ],
)
def test_wrong_options(tmp_path, options, line):
    jsonl(tmp_path, [ROWS[0] | {"kind": "root"}], "other.jsonl")
    with pytest.raises(ValueError, match=line):
        load(tmp_path, **options)


@pytest.mark.thorough
@pytest.mark.skipif(find_spec("transformers") is None, reason="no transformers: pip install 'fedcomp[hf]'")
def test_the_tokenizer_of_a_folder(tmp_path):
    """A byte-level BPE trained here: prompts masked in its tokens, and padding of its own for classes."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    bpe = ByteLevelBPETokenizer()
    lines = ["to be or not to be"] * 9
    bpe.train_from_iterator(lines, vocab_size=300, special_tokens=["</s>"], show_progress=False)
    own = PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, eos_token="</s>")
    own.save_pretrained(tmp_path / "model")
    jsonl(tmp_path, [{"ask": "to be", "say": " or not"}, {"ask": "not", "say": " to be"}])
    dataset = load(tmp_path, "same.jsonl", prompt="ask", answer="say", tokenizer="model", length=9, test="same.jsonl")
    check(dataset)
    assert dataset.vocab_size == len(own)
    for row, (x, y) in zip(("to be or not", "not to be"), zip(dataset.train.x, dataset.train.y)):
        assert own.decode(x[x != own.eos_token_id]) == row
        assert own.decode(y[y != NO_TARGET]).endswith("</s>")
    with pytest.raises(ValueError, match=r"has no padding token, which a classifier needs"):
        load(tmp_path, "same.jsonl", prompt="ask", label="say", tokenizer="model", test="same.jsonl")
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "config.json").write_text('{"model_type": "gpt2"}')  # of which the library makes an empty one
    with pytest.raises(ValueError, match=r"none has no tokenizer, or one without words"):
        load(tmp_path, "same.jsonl", prompt="ask", answer="say", tokenizer="none", test="same.jsonl")
