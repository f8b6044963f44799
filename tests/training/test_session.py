"""A run that ends at a bad moment: between a line of its record and the next checkpoint, or because others want it."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from fedcomp.config.compose import compose
from fedcomp.distributed.context import ProcessContext
from fedcomp.records.metrics_file import read_repetitions
from fedcomp.records.reader import RunFiles, read_run
from fedcomp.records.status import Status, read_status
from fedcomp.tracking.contract import Jsonl
from fedcomp.training.setup import status_during_setup
from fedcomp.training.train import train
from tests.interrupted import at_line, stopped_after
from tests.left import assert_same_run, folder_of, record, status_of
from tests.raising import raising

SMALL = ("dataset=diabetes", "model=linear", "num_clients=4", "pictures=false")
OPTIONS = (*SMALL, "rounds=6", "eval_every=1", "checkpoint_every=2", "repeats=2")

Command = Callable[..., int]
Made, Ended = Callable[[int], Path], Callable[[int], object]


MADE: dict[int, Path] = {}
"""The folder in which a run ended after a round; after 6 it is finished."""


@pytest.fixture
def made(fedcomp: Command, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """`made(3)` is the folder of a run that was stopped once the line of round 3 was written; it is trained once."""

    def make(done: int) -> Path:
        if done not in MADE:
            MADE[done] = tmp_path_factory.mktemp(f"ended_after_{done}")
            with stopped_after(done if done < 6 else -1):
                assert fedcomp(*OPTIONS, f"output_root={MADE[done]}") == (130 if done < 6 else 0)
        return MADE[done]

    return make


@pytest.fixture
def ended(made: Made, tmp_path: Path) -> Ended:
    """`ended(3)` puts a copy of that run into `tmp_path`."""
    return lambda done: shutil.copytree(made(done), tmp_path, dirs_exist_ok=True)


@pytest.mark.parametrize("wanted", [0, 3, 5])
def test_lines_behind_the_checkpoint_are_written_anew(fedcomp, tmp_path: Path, ended, made, wanted: int) -> None:
    """Rounds 0, 3 and 5 are evaluated right behind no checkpoint, that of round 2 and that of round 4."""
    ended(wanted)
    assert record(tmp_path)[-1]["round"] == wanted
    assert fedcomp(*OPTIONS) == 0
    assert [line["round"] for line in record(tmp_path)] == list(range(7))
    assert_same_run(tmp_path, made(6))
    assert sorted(read_repetitions(folder_of(tmp_path))) == list(range(7))


def test_a_damaged_checkpoint_costs_the_rounds_since_the_one_before(fedcomp, tmp_path, ended, made, capsys) -> None:
    ended(5)
    path = folder_of(tmp_path) / "checkpoint.pt"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    capsys.readouterr()
    assert fedcomp(*OPTIONS) == 0
    shown = capsys.readouterr().err
    assert "checkpoint.pt is damaged" in shown
    assert "going on from the one before it, of round 2" in shown
    assert "resuming after round 2" in shown
    assert_same_run(tmp_path, made(6))
    assert sorted(left.name for left in path.parent.glob("checkpoint*")) == ["checkpoint.pt"]


def test_a_run_whose_checkpoints_are_gone_says_that_it_starts_again(fedcomp, tmp_path, ended, made, capsys) -> None:
    ended(5)
    for left in folder_of(tmp_path).glob("checkpoint*"):
        left.unlink()
    assert fedcomp(*OPTIONS) == 0
    assert "no checkpoint is left of the 5 rounds in metrics.jsonl: starting at round 0" in capsys.readouterr().err
    assert_same_run(tmp_path, made(6))


@pytest.mark.parametrize(("file", "done"), [("metrics.jsonl", 3), ("repetitions.jsonl", 3), ("metrics.jsonl", 6)])
def test_a_record_that_is_deleted_while_a_run_writes_it_fails_it(fedcomp, tmp_path: Path, capsys, file, done) -> None:
    with at_line(done, lambda: (folder_of(tmp_path) / file).unlink()):
        assert fedcomp(*OPTIONS) == 1
    assert f"{file} was deleted while the run was running" in capsys.readouterr().err
    status = status_of(tmp_path)
    assert status.state == "failed"


def _another_digit(line: bytes) -> bytes:
    place = line.index(b".") + 1
    return line[:place] + (b"7" if line[place : place + 1] != b"7" else b"3") + line[place + 1 :]


RECORD, REPETITIONS = "metrics.jsonl", "repetitions.jsonl"
CHANGED, DOUBLED = "is not what the run wrote", "line 3 is of round 1, after a line of round 1"
HOLE = "has no line of round 2 and 1 more, but the run was at round 6"
LAST = "has no line of its last round 6"
SPOILT = [
    *[(done, file, [0, 1, -2, *range(3, done + 1)], CHANGED) for done in (3, 6) for file in (RECORD, REPETITIONS)],
    *[(3, file, [0, 1, 1, 2, 3], DOUBLED) for file in (RECORD, REPETITIONS)],
    (3, RECORD, [], "has no line of round 0"),
    (3, RECORD, [0, 2], "has no line of round 1"),
    (3, REPETITIONS, [1, 2], "has no line of round 0"),
    *[(6, file, [0, 1, 4, 5, 6], HOLE) for file in (RECORD, REPETITIONS)],
    (6, RECORD, [], LAST),
    (6, RECORD, None, LAST),
    (6, RECORD, [*range(6)], LAST),
]
"""After which round a run was stopped, which file has then which lines (-2: that of round 2 with another digit)."""


@pytest.mark.parametrize(("done", "file", "kept", "says"), SPOILT)
def test_a_spoilt_record_is_no_result(fedcomp, tmp_path: Path, ended, capsys, done, file, kept, says) -> None:
    """Nor is it gone on with."""
    ended(done)
    path = folder_of(tmp_path) / file
    lines = path.read_bytes().splitlines(keepends=True)
    if kept is None:
        path.unlink()
    else:
        path.write_bytes(b"".join(lines[round] if round >= 0 else _another_digit(lines[-round]) for round in kept))
    capsys.readouterr()
    assert fedcomp(*OPTIONS) == 1
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert file in line
    assert says in line
    assert "overwrite=true" in line
    assert says != HOLE or read_run(RunFiles(path.parent)).state == "unreadable"


def test_a_checkpoint_that_cannot_be_read_costs_no_record(fedcomp: Command, tmp_path: Path, ended: Ended) -> None:
    ended(3)
    before = record(tmp_path)
    for name in ("checkpoint.pt", "checkpoint-before.pt"):
        (folder_of(tmp_path) / name).write_bytes(b"half")
    assert fedcomp(*OPTIONS) == 1
    assert record(tmp_path) == before
    status = status_of(tmp_path)
    assert (status.state, status.round) == ("failed", 3)
    assert "overwrite=true" in str(status.error)


def test_a_record_that_cannot_be_read_is_what_the_run_failed_of(fedcomp: Command, tmp_path: Path, ended: Ended) -> None:
    ended(3)
    (folder_of(tmp_path) / "metrics.jsonl").write_bytes(b"no json\n")
    assert fedcomp(*OPTIONS) == 1
    status = status_of(tmp_path)
    assert status.state == "failed"
    assert "metrics.jsonl" in str(status.error)


def test_a_file_that_cannot_be_opened_is_one_line(fedcomp: Command, tmp_path: Path, ended: Ended, capsys) -> None:
    ended(3)
    log = folder_of(tmp_path) / "run.log"
    log.unlink()
    log.mkdir()
    for grid in ((), ("-m",)):
        capsys.readouterr()
        assert fedcomp(*grid, *OPTIONS) == 1
        assert f"error: Is a directory: {log}\n" in (shown := capsys.readouterr().err)
        assert "Traceback" not in shown
        assert "Error executing job" not in shown
    assert status_of(tmp_path).state == "failed"


def test_a_finished_run_is_found_where_nothing_can_be_written(fedcomp, tmp_path: Path, ended, monkeypatch, capsys):
    ended(6)
    real, refused = os.open, raising(PermissionError(13, "Permission denied"))

    def opened(path: Path, flags: int, *more: int) -> int:
        return (refused if flags & os.O_RDWR else real)(path, flags, *more)

    monkeypatch.setattr(os, "open", opened)
    for writable, code, says in ((False, 0, "already finished"), (True, 1, "/.lock: Permission denied; free the")):
        monkeypatch.setattr(os, "access", lambda *_, writable=writable: writable)
        assert fedcomp(*OPTIONS) == code
        assert says in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["tracker.mode=foo", "start"])
def test_a_tracker_that_does_not_start_fails_the_run(fedcomp: Command, tmp_path: Path, monkeypatch, wrong: str) -> None:
    options = ["tracker=wandb", wrong] if "=" in wrong else []

    monkeypatch.setattr(Jsonl, "start", raising(ValueError("no dashboard")))
    assert fedcomp(*OPTIONS, *options) == 1
    status = status_of(tmp_path)
    assert status.state == "failed"
    assert ("foo" if options else "no dashboard") in str(status.error)


def test_ctrl_c_before_the_first_round_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), status_during_setup(tmp_path):
        raise KeyboardInterrupt
    assert read_status(tmp_path) == Status("interrupted", 0, "before the first round")


def test_a_finished_run_takes_a_new_label(fedcomp: Command, tmp_path: Path, ended: Ended) -> None:
    ended(6)
    lines = record(tmp_path)
    for label in ("ours", "null"):
        assert fedcomp(*OPTIONS, f"label={label}", "threads=1") == 0
        config = OmegaConf.load(folder_of(tmp_path) / "config.yaml")
        assert config.label == (None if label == "null" else label)
        assert config.threads is None
    assert record(tmp_path) == lines


def test_others_may_end_a_run_and_ask_for_its_checkpoint(fedcomp: Command, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(ProcessContext, "all_reduce_flags", lambda self, stop, due: (signal.SIGTERM, True))
    assert fedcomp(*OPTIONS) == 128 + signal.SIGTERM
    assert torch.load(folder_of(tmp_path) / "checkpoint.pt", weights_only=True)["round"] == 1
    assert record(tmp_path)[-1]["round"] == 1


def test_a_process_beside_the_main_one_makes_the_rounds_and_leaves_nothing(tmp_path: Path, monkeypatch) -> None:
    rounds: list[int] = []
    monkeypatch.setattr(ProcessContext, "is_main_process", False)
    monkeypatch.setattr(ProcessContext, "check_in_sync", lambda self, state: rounds.append(len(rounds)))
    assert train(compose([*OPTIONS, f"output_root={tmp_path}"])) == []
    assert len(rounds) == 3, "one for each checkpoint"
    assert list(tmp_path.iterdir()) == []


def test_a_budget_of_bits_ends_a_run_and_it_is_finished(fedcomp: Command, tmp_path: Path, capsys) -> None:
    """A round sends 2 * 4 messages of 32 * 11 bits a repetition: 8 448 bits are three rounds."""
    options = (*OPTIONS, "eval_every=2", f"output_root={tmp_path}")
    assert fedcomp(*options) == 0
    shutil.move(folder_of(tmp_path), tmp_path / "whole")
    for budget in (8447, 8448):
        assert fedcomp(*options, f"max_bits={budget}", "overwrite=true") == 0
        assert "were sent after round 3 of 6" in capsys.readouterr().err
        lines = record(tmp_path / "fedcomp")
        assert [line["round"] for line in lines] == [0, 2, 3]
        assert lines[-1]["bits/total"] == 8448
        shutil.rmtree(tmp_path / "fedcomp")
    assert fedcomp(*options, "max_bits=8448") == 0
    assert fedcomp(*options, "max_bits=8448") == 0
    assert "already finished" in capsys.readouterr().err
    assert read_run(RunFiles(folder_of(tmp_path / "fedcomp"))).finished
    status = folder_of(tmp_path / "fedcomp") / "status.json"
    status.write_text(status.read_text().replace("finished", "running"))  # killed before it could say so
    before = record(tmp_path / "fedcomp")
    assert fedcomp(*options, "max_bits=8448") == 0
    assert record(tmp_path / "fedcomp") == before
