"""Signals that ask a run to stop, and SIGHUP, which `nohup` has ignored from the start."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedcomp.launcher.process import Children
from fedcomp.records.status import read_status
from fedcomp.runtime.graceful_stop import SIGNALS, GracefulStop
from fedcomp.tracking.jsonl import Jsonl

TINY = ("dataset=diabetes", "model=linear", "num_clients=4", "rounds=4", "pictures=false")


@pytest.fixture
def ignored() -> Iterator[None]:
    """As `nohup` starts a process."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_every_signal_is_heard_and_given_back(number: signal.Signals) -> None:
    before = {one: signal.getsignal(one) for one in SIGNALS}
    with GracefulStop() as stop:
        signal.raise_signal(number)
        assert stop.number == number
    with Children() as children:
        signal.raise_signal(number)
        assert children.heard == number
    assert {one: signal.getsignal(one) for one in SIGNALS} == before


@pytest.mark.usefixtures("ignored")
def test_what_nohup_ignores_stays_ignored() -> None:
    with GracefulStop() as stop, Children() as children:
        signal.raise_signal(signal.SIGHUP)
        assert stop.number is None
        assert children.heard is None
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


@pytest.mark.parametrize("grid", [False, True], ids=["run", "grid"])
def test_a_closed_terminal_saves_the_run(
    fedcomp: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, grid: bool
) -> None:
    def log(self: Jsonl, record: dict) -> None:
        if record["round"] == 2:
            signal.raise_signal(signal.SIGHUP)

    with monkeypatch.context() as patch:
        patch.setattr(Jsonl, "log", log)
        assert fedcomp(*TINY, *(["-m", "seed=0,1"] if grid else [])) == 128 + signal.SIGHUP
    (path,) = tmp_path.rglob("status.json")
    status = read_status(path.parent)
    assert status is not None
    assert (status.state, status.round) == ("interrupted", 2)
    assert fedcomp(*TINY) == 0
    assert "resuming after round 2" in capsys.readouterr().err
