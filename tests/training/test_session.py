"""A run that ends at a bad moment: between a line of its record and the next checkpoint, or because others want it."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from fedcomp.distributed.context import ProcessContext
from fedcomp.records.metrics_file import read_lines, read_repetitions
from fedcomp.records.reader import RunFiles, read_run
from fedcomp.records.status import read_status
from fedcomp.tracking.contract import Jsonl

OPTIONS = (
    "dataset=diabetes",
    "model=linear",
    "num_clients=4",
    "rounds=6",
    "eval_every=1",
    "checkpoint_every=2",
    "repeats=2",
    "pictures=false",
)

Command = Callable[..., int]
Made, Ended = Callable[[int], Path], Callable[[int], object]


def _folder(root: Path) -> Path:
    return next(root.rglob("config.yaml")).parent


def _lines(root: Path) -> list[dict[str, float]]:
    return [{**line, "seconds": 0} for line in read_lines(_folder(root) / "metrics.jsonl")]


def _stop_at(monkeypatch: pytest.MonkeyPatch, wanted: int) -> None:
    """The run ends once the line of round `wanted` is written."""

    def log(self: Jsonl, record: dict) -> None:
        if record["round"] == wanted:
            raise KeyboardInterrupt

    monkeypatch.setattr(Jsonl, "log", log)


MADE: dict[int, Path] = {}
"""The folder in which a run ended after a round; after 6 it is finished."""


@pytest.fixture
def made(fedcomp: Command, tmp_path_factory: pytest.TempPathFactory, monkeypatch) -> Made:
    """`made(3)` is the folder of a run that was stopped once the line of round 3 was written; it is trained once."""

    def make(done: int) -> Path:
        if done not in MADE:
            MADE[done] = tmp_path_factory.mktemp(f"ended_after_{done}")
            with monkeypatch.context() as patch:
                _stop_at(patch, done if done < 6 else -1)
                assert fedcomp(*OPTIONS, f"output_root={MADE[done]}") == (130 if done < 6 else 0)
        return MADE[done]

    return make


@pytest.fixture
def ended(made: Made, tmp_path: Path) -> Ended:
    """`ended(3)` puts a copy of that run into `tmp_path`."""
    return lambda done: shutil.copytree(made(done), tmp_path, dirs_exist_ok=True)


@pytest.mark.parametrize("wanted", [0, 3, 5])
def test_lines_behind_the_checkpoint_are_written_anew(
    fedcomp: Command, tmp_path: Path, ended: Ended, made: Made, wanted: int
) -> None:
    """Rounds 0, 3 and 5 are evaluated right behind no checkpoint, that of round 2 and that of round 4."""
    ended(wanted)
    assert _lines(tmp_path)[-1]["round"] == wanted
    assert fedcomp(*OPTIONS) == 0
    assert [line["round"] for line in _lines(tmp_path)] == list(range(7))
    assert _lines(tmp_path) == _lines(made(6))
    files = [(_folder(root) / "repetitions.jsonl").read_bytes() for root in (tmp_path, made(6))]
    assert files[0] == files[1]
    assert sorted(read_repetitions(_folder(tmp_path))) == list(range(7))


def test_a_damaged_checkpoint_costs_only_the_rounds_since_the_one_before(
    fedcomp: Command,
    tmp_path: Path,
    ended: Ended,
    made: Made,
    capsys,
) -> None:
    ended(5)
    path = _folder(tmp_path) / "checkpoint.pt"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    capsys.readouterr()
    assert fedcomp(*OPTIONS) == 0
    shown = capsys.readouterr().err
    assert "checkpoint.pt is damaged" in shown
    assert "going on from the one before it, of round 2" in shown
    assert "resuming after round 2" in shown
    assert _lines(tmp_path) == _lines(made(6))
    states = [torch.load(_folder(root) / "checkpoint.pt", weights_only=True) for root in (tmp_path, made(6))]
    assert states[0]["ledger"] == states[1]["ledger"]
    assert all(torch.equal(tensor, states[1]["state"][name]) for name, tensor in states[0]["state"].items())
    assert sorted(left.name for left in path.parent.glob("checkpoint*")) == ["checkpoint.pt"]


@pytest.mark.parametrize(("file", "done"), [("metrics.jsonl", 3), ("repetitions.jsonl", 3), ("metrics.jsonl", 6)])
def test_a_record_that_is_deleted_while_the_run_writes_it_fails_the_run(
    fedcomp: Command, tmp_path: Path, monkeypatch, capsys, file: str, done: int
) -> None:
    def log(self: Jsonl, record: dict) -> None:
        if record["round"] == done:
            (_folder(tmp_path) / file).unlink()

    monkeypatch.setattr(Jsonl, "log", log)
    assert fedcomp(*OPTIONS) == 1
    assert f"{file} was deleted while the run was running" in capsys.readouterr().err
    status = read_status(_folder(tmp_path))
    assert status is not None
    assert status.state == "failed"


@pytest.mark.parametrize("file", ["metrics.jsonl", "repetitions.jsonl"])
@pytest.mark.parametrize("stopped", [True, False])
def test_a_record_whose_values_were_changed_is_refused(
    fedcomp: Command, tmp_path: Path, ended: Ended, capsys, file: str, stopped: bool
) -> None:
    """A digit of the line of round 2 is another, when the run resumes after it, and when it is finished."""
    ended(3 if stopped else 6)
    path = _folder(tmp_path) / file
    lines = path.read_bytes().splitlines(keepends=True)
    place = lines[2].index(b".") + 1
    lines[2] = lines[2][:place] + (b"7" if lines[2][place : place + 1] != b"7" else b"3") + lines[2][place + 1 :]
    path.write_bytes(b"".join(lines))
    assert fedcomp(*OPTIONS) == 1
    assert f"{path} is not what the run wrote" in capsys.readouterr().err


@pytest.mark.parametrize("file", ["metrics.jsonl", "repetitions.jsonl"])
@pytest.mark.parametrize(("order", "complaint"), [((0, 1, 1, 2, 3), "line 3 is of round 1, after a line of round 1")])
def test_a_record_with_a_doubled_line_is_not_gone_on_with(
    fedcomp: Command, tmp_path: Path, ended: Ended, capsys, file: str, order: tuple[int, ...], complaint: str
) -> None:
    ended(3)
    path = _folder(tmp_path) / file
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[round] for round in order))
    assert fedcomp(*OPTIONS) == 1
    assert f"{file}, {complaint}" in capsys.readouterr().err


def test_a_checkpoint_that_cannot_be_read_costs_no_record(fedcomp: Command, tmp_path: Path, ended: Ended) -> None:
    ended(3)
    before = _lines(tmp_path)
    for name in ("checkpoint.pt", "checkpoint-before.pt"):
        (_folder(tmp_path) / name).write_bytes(b"half")
    assert fedcomp(*OPTIONS) == 1
    assert _lines(tmp_path) == before
    status = read_status(_folder(tmp_path))
    assert status is not None
    assert (status.state, status.round) == ("failed", 3)
    assert "overwrite=true" in str(status.error)


def test_a_record_that_cannot_be_read_is_what_the_run_failed_of(fedcomp: Command, tmp_path: Path, ended: Ended) -> None:
    ended(3)
    (_folder(tmp_path) / "metrics.jsonl").write_bytes(b"no json\n")
    assert fedcomp(*OPTIONS) == 1
    status = read_status(_folder(tmp_path))
    assert status is not None
    assert status.state == "failed"
    assert "metrics.jsonl" in str(status.error)


@pytest.mark.parametrize("wrong", ["tracker.mode=foo", "start"])
def test_a_tracker_that_does_not_start_fails_the_run(fedcomp: Command, tmp_path: Path, monkeypatch, wrong: str) -> None:
    options = ["tracker=wandb", wrong] if "=" in wrong else []

    def start(self: Jsonl, info: object) -> None:
        raise ValueError("no dashboard")

    monkeypatch.setattr(Jsonl, "start", start)
    assert fedcomp(*OPTIONS, *options) == 1
    status = read_status(_folder(tmp_path))
    assert status is not None
    assert status.state == "failed"
    assert ("foo" if options else "no dashboard") in str(status.error)


def test_a_finished_run_takes_a_new_label(fedcomp: Command, tmp_path: Path, ended: Ended) -> None:
    ended(6)
    lines = _lines(tmp_path)
    for label in ("ours", "null"):
        assert fedcomp(*OPTIONS, f"label={label}", "threads=1") == 0
        config = OmegaConf.load(_folder(tmp_path) / "config.yaml")
        assert config.label == (None if label == "null" else label)
        assert config.threads is None
    assert _lines(tmp_path) == lines


def test_others_may_end_a_run_and_ask_for_its_checkpoint(fedcomp: Command, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(ProcessContext, "all_reduce_flags", lambda self, stop, due: (signal.SIGTERM, True))
    assert fedcomp(*OPTIONS) == 128 + signal.SIGTERM
    assert torch.load(_folder(tmp_path) / "checkpoint.pt", weights_only=True)["round"] == 1
    assert _lines(tmp_path)[-1]["round"] == 1


@pytest.mark.parametrize(
    ("file", "kept"), [("metrics.jsonl", ()), ("metrics.jsonl", (0, 2)), ("repetitions.jsonl", (1, 2))]
)
def test_a_record_with_missing_lines_is_not_gone_on_with(
    fedcomp: Command, tmp_path: Path, ended: Ended, capsys, file: str, kept: tuple[int, ...]
) -> None:
    ended(3)
    path = _folder(tmp_path) / file
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[round] for round in kept))
    assert fedcomp(*OPTIONS) == 1
    missing = min({0, 1, 2} - set(kept))
    shown = capsys.readouterr().err
    assert f"{file} has no line of round {missing}" in shown
    assert "overwrite=true" in shown


@pytest.mark.parametrize("file", ["metrics.jsonl", "repetitions.jsonl"])
def test_a_finished_run_with_a_hole_in_its_record_is_no_result(
    fedcomp: Command, tmp_path: Path, ended: Ended, capsys, file: str
) -> None:
    ended(6)
    path = _folder(tmp_path) / file
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2] + lines[4:]))
    assert fedcomp(*OPTIONS) == 1
    assert f"{file} has no line of round 2 and 1 more, but the run was at round 6" in capsys.readouterr().err
    assert read_run(RunFiles(path.parent)).state == "unreadable"


@pytest.mark.parametrize("broken", ["empty", "missing", "short"])
def test_a_finished_run_without_its_record_says_what_to_do(
    fedcomp: Command, tmp_path: Path, ended: Ended, capsys, broken: str
) -> None:
    ended(6)
    path = _folder(tmp_path) / "metrics.jsonl"
    if broken == "missing":
        path.unlink()
    else:
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1] if broken == "short" else []))
    assert fedcomp(*OPTIONS) == 1
    shown = capsys.readouterr().err
    assert "metrics.jsonl has no line of its last round 6" in shown
    assert "overwrite=true" in shown


def test_a_budget_of_bits_ends_a_run_and_it_is_finished(fedcomp: Command, tmp_path: Path, capsys) -> None:
    """A round sends 2 * 4 messages of 32 * 11 bits a repetition: 8 448 bits are three rounds."""
    options = (*OPTIONS, "eval_every=2", f"output_root={tmp_path}")
    assert fedcomp(*options) == 0
    shutil.move(_folder(tmp_path), tmp_path / "whole")
    for budget in (8447, 8448):
        assert fedcomp(*options, f"max_bits={budget}", "overwrite=true") == 0
        assert "were sent after round 3 of 6" in capsys.readouterr().err
        lines = _lines(tmp_path / "fedcomp")
        assert [line["round"] for line in lines] == [0, 2, 3]
        assert lines[-1]["bits/total"] == 8448
        shutil.rmtree(tmp_path / "fedcomp")
    assert fedcomp(*options, "max_bits=8448") == 0
    assert fedcomp(*options, "max_bits=8448") == 0
    assert "already finished" in capsys.readouterr().err
    assert read_run(RunFiles(_folder(tmp_path / "fedcomp"))).finished
    status = _folder(tmp_path / "fedcomp") / "status.json"
    status.write_text(status.read_text().replace("finished", "running"))  # killed before it could say so
    before = _lines(tmp_path / "fedcomp")
    assert fedcomp(*options, "max_bits=8448") == 0
    assert _lines(tmp_path / "fedcomp") == before
