"""An error in a user's own code: its last line in three lines on the terminal, the whole traceback in run.log."""

from pathlib import Path

import pytest

from fedcomp.core.folders import CONF
from fedcomp.training.error_location import is_in_code, summary
from tests.left import status_of
from tests.outside import write_files

CODE = """
from dataclasses import dataclass, field
import torch
from torch.nn.functional import linear
from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.compressor import Codec
from fedcomp.dataset.images.digits import load
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Float

def nothing(**_):
    return {}["data"]

class Net(torch.nn.Linear):
    def __init__(self, input_shape, num_outputs, **_):
        super().__init__(7, num_outputs)
    def forward(self, x):
        return linear(x, self.weight)

@dataclass(frozen=True)
class Averaging(FedAvg):
    def round(self, state, cohort, ctx):
        return state.memory

@dataclass(frozen=True)
class Failing(Codec):
    when: str = "never"
    unbiased, contractive, near_lossless = True, True, True
    def __post_init__(self):
        if self.when == "refusal":
            raise ValueError("compressor.when=refusal must be something else")
        if self.when == "behind": raise ValueError("compressor.when=behind must be something else")
        if self.when == "init":
            self.missing
    def encode(self, x, common, sender_key):
        if self.when == "encode":
            return x @ torch.zeros(3, 3)
        if self.when == "word":
            int("abc")
        if self.when == "late":
            raise ValueError("entries must be small")
        if self.when == "int":
            return 5
        return Payload({"v": Field(x, Float())})
    def decode(self, payload, common):
        assert self.when != "decode"
        return payload.fields["v"].data
"""
OPTIONS = ("rounds=1", "model=linear", "num_clients=4", "pictures=false")


@pytest.fixture
def own(tmp_path: Path) -> tuple[str, ...]:
    """A config folder with a part of each kind; its module has a name of its own, since modules stay imported."""
    module = f"own_{abs(hash(str(tmp_path)))}"
    fedavg = (CONF / "algorithm" / "fedavg.yaml").read_text()
    parts = {
        "compressor": "_target_: MODULE.Failing\nwhen: never\nfeedback: none\n",
        "dataset": "_target_: MODULE.nothing\n",
        "model": "_target_: MODULE.Net\n_partial_: true\n",
        "algorithm": fedavg.replace("fedcomp.algorithm.fedavg.FedAvg", "MODULE.Averaging"),
    }
    configs = {f"{group}/own.yaml": text.replace("MODULE", module) for group, text in parts.items()}
    folder = write_files(tmp_path / "own", {f"{module}.py": CODE, **configs})
    return ("--config-dir", str(folder), *OPTIONS)


WRONG = [
    ("dataset=own", "KeyError: 'data'", 'in nothing: return {}["data"]'),
    ("model=own", "does not take inputs of shape (64,)", "in forward: return linear(x, self.weight)"),
    ("algorithm=own", "AttributeError: ", "in round: return state.memory"),
    ("compressor.when=init", "AttributeError: 'Failing' object has no attribute 'mi", "in __post_init__: self.missing"),
    ("compressor.when=encode", "RuntimeError: mat1 and mat2 shapes", "in encode: return x @ torch.zeros(3, 3)"),
    ("compressor.when=word", "ValueError: invalid literal for int()", 'in encode: int("abc")'),
    ("compressor.when=decode", "AssertionError", 'in decode: assert self.when != "decode"'),
]


@pytest.mark.parametrize(("word", "message", "place"), WRONG, ids=[one[0] for one in WRONG])
def test_three_lines_and_the_whole_in_the_log(fedcomp, tmp_path, capsys, own, word, message, place) -> None:
    chosen = ("compressor=own",) if word.startswith("compressor.") else ()
    assert fedcomp(*own, *chosen, word, "quiet=true") == 1
    first, second, third = capsys.readouterr().err.splitlines()
    (log,) = tmp_path.rglob("run.log")
    assert first.startswith("fedcomp: error: ")
    assert message in first
    assert second.startswith(f'  File "{tmp_path}/own/own_')
    assert '.py", line ' in second
    assert second.endswith(place)
    assert third == f"  the whole traceback is in {log}"
    assert place.split(": ", 1)[1] in log.read_text()
    assert "Traceback (most recent call last)" in log.read_text()
    status = status_of(tmp_path)
    assert status.state == "failed"
    assert message in str(status.error)
    assert ".py, line " in str(status.error)


@pytest.mark.parametrize(
    ("when", "line"),
    [
        ("refusal", "compressor.when=refusal must be something else"),
        ("behind", "compressor.when=behind must be something else"),
        ("late", "entries must be small"),
        ("int", "Failing.encode returned int, but must return a fedcomp.wire.Payload"),
    ],
)
def test_a_refusal_stays_one_line(fedcomp, capsys, own, when, line) -> None:
    assert fedcomp(*own, "compressor=own", f"compressor.when={when}", "quiet=true") == 1
    assert capsys.readouterr().err == f"fedcomp: error: {line}\n"


def test_a_run_of_a_grid_shows_them_too_and_the_others_go_on(fedcomp, capsys, own) -> None:
    assert fedcomp("-m", *own, "compressor=own", "compressor.when=decode,never", "quiet=true") == 1
    shown = capsys.readouterr().err
    assert "in decode: assert" in shown
    assert "1 finished, 1 failed" in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ("MODULE.Fail", "has no 'Fail'; did you mean 'Failing'? (there are: Failing, "),
        ("MODULE.Failing.make", "Failing has no 'make'"),
        ("MODULEx.Codec", "x'; did you mean 'own_"),
        ("fedcomp.compressor.sparsifiers.topkk.TopK", "has no 'topkk'; did you mean 'topk'?"),
        ("fedcomp.compressor.topk.TopK", "; TopK lies in fedcomp.compressor.sparsifiers.topk\n"),
        ("fedcomp.compressor.sparsifiers.topk.Topk", "has no 'Topk'; did you mean 'TopK'?"),
    ],
)
def test_a_class_or_a_module_that_is_missing(fedcomp, capsys, own, target, line) -> None:
    word = f"compressor._target_={target.replace('MODULE', next(Path(own[1]).glob('*.py')).stem)}"
    assert fedcomp(*own, "compressor=own", word) == 1
    shown = capsys.readouterr().err
    assert f"fedcomp: error: {word}: " in shown
    assert line in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"), [("def f(:\n", "SyntaxError"), ("import numpyy\n", "No module named 'numpyy'")]
)
def test_a_module_that_cannot_be_imported(fedcomp, capsys, own, text, message) -> None:
    path = Path(own[1]) / f"broken{abs(hash(text + own[1]))}.py"
    path.write_text(text)
    assert fedcomp(*own, "compressor=own", f"compressor._target_={path.stem}.Failing") == 1
    first, second, _ = capsys.readouterr().err.splitlines()
    assert message in first
    assert second == f'  File "{path}", line 1, in <module>: {text.strip()}'


def test_errors_of_the_machine_are_none_of_code() -> None:
    for error in (OSError("disk"), ValueError("input"), MemoryError(), KeyboardInterrupt(), SystemExit(1)):
        assert not is_in_code(error)
    assert summary(ValueError("one\ntwo")) == "one"
    assert summary(MemoryError()) == "MemoryError"
    assert is_in_code(KeyError("ours"))
