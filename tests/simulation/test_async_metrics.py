"""Values read late, beside the next round, leave the files of a run that reads them at once, bit for bit."""

import math
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedcomp.records.metrics_file import read_lines
from fedcomp.runtime.signals import Interrupted
from fedcomp.simulation.async_metrics import MetricsReader, pack, to_host, unpack
from fedcomp.simulation.divergence import Diverged
from fedcomp.simulation.round_result import RoundResult
from tests.conformance import world
from tests.left import assert_same_run, checkpoint_of, record, status_of
from tests.raising import raising
from tests.thorough import thorough
from tests.training.sessions import BOTH, METHODS, Late, session_in


@pytest.mark.parametrize("late", BOTH, ids=str)
@pytest.mark.parametrize("every", [(3, 2), *thorough([(1, 1), (1, None)])], ids=str)
@pytest.mark.parametrize("name", METHODS)
def test_late_readings_leave_the_same_files(tmp_path, name, every, late) -> None:
    algorithm, module = METHODS[name]
    for how in (MetricsReader(), late):
        sim = world.simulation(algorithm(), module, rounds=7)
        lines = session_in(tmp_path / type(how).__name__, how, sim, every).run()
        assert [line["round"] for line in lines] == ([0, 3, 6, 7] if every[0] == 3 else [*range(8)])
    assert_same_run(tmp_path / "MetricsReader", tmp_path / "Late")


def test_the_next_round_is_launched_before_the_line_and_a_checkpoint_comes_after_it(tmp_path) -> None:
    def order(how, every: tuple[int, int]) -> str:
        session = session_in(tmp_path / type(how).__name__, how, every=every)
        session.run()
        return ", ".join(session.writer.tracker.events)

    assert order(BOTH[0], (1, 3)) == (
        "round 1, line 0, round 2, line 1, round 3, line 2, line 3, checkpoint 3, round 4, round 5, line 4, "
        "round 6, line 5, line 6, checkpoint 6, round 7, line 7, checkpoint 7"
    )
    assert order(MetricsReader(), (2, 3)) == (
        "line 0, round 1, round 2, line 2, round 3, checkpoint 3, round 4, line 4, round 5, round 6, line 6, "
        "checkpoint 6, round 7, line 7, checkpoint 7"
    )


def _in_round(wanted: int, happens: Callable[[], object]) -> Callable[[int], None]:
    """What a session does `before` each round: in round `wanted` this happens."""
    return lambda round: happens() if round == wanted else None


def _stop() -> None:
    signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("late", BOTH, ids=str)
def test_an_interruption_writes_what_is_on_its_way_and_resumes(tmp_path, late) -> None:
    session_in(tmp_path / "unbroken", MetricsReader()).run()

    with pytest.raises(Interrupted, match="interrupted after round 5 of 7, state saved"):
        session_in(tmp_path / "late", late, before=_in_round(5, _stop)).run()
    assert [line["round"] for line in read_lines(tmp_path / "late" / "metrics.jsonl")] == [*range(6)]
    assert checkpoint_of(tmp_path / "late")["round"] == 5
    session_in(tmp_path / "late", late).run()
    assert_same_run(tmp_path / "unbroken", tmp_path / "late")


@pytest.mark.parametrize("how", [MetricsReader(), *BOTH], ids=["at once", "soon", "late"])
@pytest.mark.parametrize("error", [ValueError, RuntimeError, KeyboardInterrupt])
def test_a_round_that_fails_leaves_the_line_before_it(tmp_path, how, error) -> None:
    with pytest.raises(Interrupted if error is KeyboardInterrupt else error):
        session_in(tmp_path, how, before=_in_round(5, raising(error("no more")))).run()
    said = {KeyboardInterrupt: "stopped at once", RuntimeError: "RuntimeError: no more", ValueError: "no more"}
    _assert_left_after_round_4(tmp_path, "interrupted" if error is KeyboardInterrupt else "failed", said[error])


def _assert_left_after_round_4(folder: Path, state: str, said: str) -> None:
    assert ([line["round"] for line in record(folder)], checkpoint_of(folder)["round"]) == ([*range(5)], 3)
    status = status_of(folder)
    assert (status.state, status.round) == (state, 4)
    assert str(status.error).startswith(said)


def _spoilt(round_index: int):
    """Loss of the second client is infinite in that round."""

    def after(done: int, outcome: RoundResult) -> RoundResult:
        if done != round_index:
            return outcome
        loss = outcome.metrics["train/loss"].clone()
        loss[1] = math.inf
        return replace(outcome, metrics=outcome.metrics | {"train/loss": loss})

    return after


@pytest.mark.parametrize("how", [MetricsReader(), *BOTH], ids=["at once", "soon", "late"])
@pytest.mark.parametrize("next_fails", [False, True])
def test_a_divergence_names_its_round_whatever_comes_next(tmp_path, how, next_fails) -> None:
    before = _in_round(6 if next_fails else -1, raising(RuntimeError("a consequence")))
    with pytest.raises(Diverged, match=r"round 5: the loss of client \d is inf"):
        session_in(tmp_path, how, before=before, after=_spoilt(5)).run()
    _assert_left_after_round_4(tmp_path, "failed", "round 5")


@pytest.mark.parametrize("late", BOTH, ids=str)
def test_no_checkpoint_and_no_interruption_hides_a_divergence(tmp_path, late) -> None:
    """Rounds that nobody evaluates: what is still on the device is read before the state is saved."""
    with pytest.raises(Diverged, match="round 4"):
        session_in(tmp_path / "due", late, every=(7, 5), after=_spoilt(4)).run()

    with pytest.raises(Diverged, match="round 4"):
        session_in(tmp_path / "stopped", late, every=(7, 6), before=_in_round(4, _stop), after=_spoilt(4)).run()
    for folder in ("due", "stopped"):
        assert not (tmp_path / folder / "checkpoint.pt").exists()


def test_a_lost_device_is_told_and_not_what_follows_from_it(tmp_path) -> None:
    class Lost(Late):
        def read(self, launch):
            again = raising(RuntimeError("CUDA error: again"))
            return again if session.simulation.events else super().read(launch)

    first = _in_round(2, raising(RuntimeError("CUDA error: first")))
    session = session_in(tmp_path, Lost(soon=True), before=first)
    with pytest.raises(RuntimeError, match="first"):
        session.run()


def test_every_bit_survives_the_packing() -> None:
    kept = {"whole": torch.tensor(2**53 + 1), "small": torch.tensor(7, dtype=torch.int32), "flag": torch.tensor(True)}
    kept |= {"single": torch.tensor(0.1), "double": torch.tensor(0.1, dtype=torch.float64), "list": [1.5, 2.5]}
    kept |= {"inf": torch.tensor(-math.inf), "zero": torch.tensor(-0.0), "known": 3}
    parts = (kept, {}, {"nan": torch.tensor(math.nan), "largest": torch.tensor(2**63 - 1)})
    first, none, last = unpack(parts, pack(parts))
    assert first == to_host(kept)[0]
    assert first["whole"] == 2**53 + 1
    assert first["single"] == float(torch.tensor(0.1))
    assert (first["double"], first["small"], first["flag"], first["inf"]) == (0.1, 7, 1, -math.inf)
    assert math.copysign(1, first["zero"]) == -1
    assert (first["known"], first["list"], none) == (3, [1.5, 2.5], {})
    assert math.isnan(last["nan"])
    assert last["largest"] == 2**63 - 1
    assert {type(first[name]) for name in ("whole", "small", "flag")} == {int}
    assert unpack(({"only": 1},), pack(({"only": 1},))) == ({"only": 1},)
