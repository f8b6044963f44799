"""Values read late, beside the next round, leave the files of a run that reads them at once, bit for bit."""

from __future__ import annotations

import math
import signal
import weakref
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from fedcomp.algorithm.bicompfl_gr import BiCompFLGR
from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.algorithm.fedpm import FedPM
from fedcomp.client.adam import Adam as LocalAdam
from fedcomp.client.sgd import Sgd
from fedcomp.compressor import Compressor
from fedcomp.compressor.feedback import ErrorFeedback
from fedcomp.compressor.sign import Sign
from fedcomp.compressor.topk import TopK
from fedcomp.server.adam import Adam
from fedcomp.session import Session
from fedcomp.simulation import readings
from fedcomp.simulation.capture import CudaGraphs
from fedcomp.simulation.local import Shards
from fedcomp.simulation.once import Once
from fedcomp.simulation.outcome import Outcome
from fedcomp.simulation.readings import Aside, AtOnce, numbers, pack, unpack
from fedcomp.simulation.recorded import Recorder
from fedcomp.simulation.watch import Diverged
from fedcomp.stop import Interrupted
from fedcomp.tracking.contract import RunInfo
from fedcomp.tracking.jsonl import Jsonl
from fedcomp.tracking.progress import Progress
from fedcomp.tracking.record import read_lines
from fedcomp.tracking.status import Status, read_status
from fedcomp.wire import Ledger
from tests.conformance import world
from tests.simulation import clocked_streams
from tests.simulation.clocked_streams import Race, Streams
from tests.simulation.test_no_host_sync import MASKS, TASKS, Counter, _everybody


def _fedavg() -> FedAvg:
    """With memories at both ends, and bits that depend on data."""
    uplink = Compressor(TopK(0.2, "rice"), ErrorFeedback())
    return FedAvg(Sgd(lr=0.1, momentum=0.9), Adam(), uplink, Compressor(Sign(), ErrorFeedback()))


METHODS = {
    "fedavg": (_fedavg, world.with_batch_norm),
    "fedpm": (lambda: FedPM(LocalAdam(lr=0.1, batch_size=4)), world.masked_batch_norm),
    "bicompfl": (lambda: BiCompFLGR(client=LocalAdam(lr=0.1, batch_size=4), block=8), world.masked_batch_norm),
}


@dataclass(frozen=True)
class Late:
    """Reads when asked. `soon`: computes at once; else as late as a side stream could, when asked too."""

    soon: bool
    late: bool = True

    def read(self, launch):
        parts = launch() if self.soon else None
        return lambda: numbers(*(parts if parts is not None else launch()))


BOTH = [Late(soon=True), Late(soon=False)]


@dataclass
class Told(Jsonl):
    """Notes lines in `events`."""

    events: list[str]

    def log(self, record) -> None:
        self.events.append(f"line {record['round']}")


@dataclass(frozen=True)
class Rounds(Once):
    """Notes rounds in `events`, and does `before` and `after` to them."""

    events: list[str] = field(default_factory=list)
    before: Any = None
    after: Any = None

    def round(self, index: int, state: Any, ledger: Ledger) -> tuple[Any, Outcome]:
        self.events.append(f"round {index + 1}")
        if self.before is not None:
            self.before(index + 1)
        state, outcome = super().round(index, state, ledger)
        return state, outcome if self.after is None else self.after(index + 1, outcome)


@dataclass(frozen=True)
class Noting(Session):
    """Notes checkpoints in the tracker's `events`."""

    def _write(self, position) -> None:
        super()._write(position)
        self.tracker.events.append(f"checkpoint {position.round}")


def _session(folder: Path, how, sim=None, every=(1, 3), before=None, after=None) -> Noting:
    events: list[str] = []
    sim = sim if sim is not None else world.simulation(_fedavg(), world.with_batch_norm, rounds=7)
    info = RunInfo(folder, "toy", "hash", 0, {})
    rounds = Rounds(sim, events, before, after)
    return Noting(rounds, info, Told(events), Progress("quiet"), *every, pictures=False, readings=how)


def _left(folder: Path) -> tuple[list[dict], Status | None, dict, dict]:
    """Lines without their times, the status, and the checkpoint."""
    kept = torch.load(folder / "checkpoint.pt", weights_only=True)
    lines = [{**line, "seconds": 0} for line in read_lines(folder / "metrics.jsonl")]
    return lines, read_status(folder), kept["state"], kept["ledger"] | {"round": kept["round"]}


def _assert_same(one: Path, other: Path) -> None:
    (*rest, state, ledger), (*others, state_2, ledger_2) = _left(one), _left(other)
    assert rest == others
    assert ledger == ledger_2
    assert state.keys() == state_2.keys()
    assert all(torch.equal(state[name], state_2[name]) for name in state)


@pytest.mark.parametrize("late", BOTH, ids=str)
@pytest.mark.parametrize("every", [(1, 1), (3, 2), (1, None)], ids=str)
@pytest.mark.parametrize("name", METHODS)
def test_late_readings_leave_the_same_files(tmp_path, name, every, late) -> None:
    algorithm, module = METHODS[name]
    for how in (AtOnce(), late):
        sim = world.simulation(algorithm(), module, rounds=7)
        lines = _session(tmp_path / type(how).__name__, how, sim, every).run()
        assert [line["round"] for line in lines] == ([0, 3, 6, 7] if every[0] == 3 else [*range(8)])
    _assert_same(tmp_path / "AtOnce", tmp_path / "Late")


def test_the_next_round_is_launched_before_the_line_and_a_checkpoint_comes_after_it(tmp_path) -> None:
    def order(how, every: tuple[int, int]) -> str:
        session = _session(tmp_path / type(how).__name__, how, every=every)
        session.run()
        return ", ".join(session.tracker.events)

    assert order(BOTH[0], (1, 3)) == (
        "round 1, line 0, round 2, line 1, round 3, line 2, line 3, checkpoint 3, round 4, round 5, line 4, "
        "round 6, line 5, line 6, checkpoint 6, round 7, line 7, checkpoint 7"
    )
    assert order(AtOnce(), (2, 3)) == (
        "line 0, round 1, round 2, line 2, round 3, checkpoint 3, round 4, line 4, round 5, round 6, line 6, "
        "checkpoint 6, round 7, line 7, checkpoint 7"
    )


@pytest.mark.parametrize("late", BOTH, ids=str)
def test_an_interruption_writes_what_is_on_its_way_and_resumes(tmp_path, late) -> None:
    _session(tmp_path / "unbroken", AtOnce()).run()

    def before(done: int) -> None:
        if done == 5:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted, match="interrupted after round 5 of 7, state saved"):
        _session(tmp_path / "late", late, before=before).run()
    assert [line["round"] for line in read_lines(tmp_path / "late" / "metrics.jsonl")] == [*range(6)]
    assert _left(tmp_path / "late")[3]["round"] == 5
    _session(tmp_path / "late", late).run()
    _assert_same(tmp_path / "unbroken", tmp_path / "late")


@pytest.mark.parametrize("how", [AtOnce(), *BOTH], ids=["at once", "soon", "late"])
@pytest.mark.parametrize("error", [ValueError, RuntimeError, KeyboardInterrupt])
def test_a_round_that_fails_leaves_the_line_before_it(tmp_path, how, error) -> None:
    def before(done: int) -> None:
        if done == 5:
            raise error("no more")

    with pytest.raises(Interrupted if error is KeyboardInterrupt else error):
        _session(tmp_path, how, before=before).run()
    lines, status, _, kept = _left(tmp_path)
    assert [line["round"] for line in lines] == [*range(5)]
    assert kept["round"] == 3
    assert status is not None
    assert (status.state, status.round) == ("interrupted" if error is KeyboardInterrupt else "failed", 4)
    assert str(status.error).startswith("stopped at once" if error is KeyboardInterrupt else "no more")


def _spoilt(round_index: int):
    """Loss of the second client is infinite in that round."""

    def after(done: int, outcome: Outcome) -> Outcome:
        if done != round_index:
            return outcome
        loss = outcome.metrics["train/loss"].clone()
        loss[1] = math.inf
        return replace(outcome, metrics=outcome.metrics | {"train/loss": loss})

    return after


@pytest.mark.parametrize("how", [AtOnce(), *BOTH], ids=["at once", "soon", "late"])
@pytest.mark.parametrize("next_fails", [False, True])
def test_a_divergence_names_its_round_whatever_comes_next(tmp_path, how, next_fails) -> None:
    def before(done: int) -> None:
        if next_fails and done == 6:
            raise RuntimeError("a consequence")

    with pytest.raises(Diverged, match=r"round 5: the loss of client \d is inf"):
        _session(tmp_path, how, before=before, after=_spoilt(5)).run()
    lines, status, _, kept = _left(tmp_path)
    assert ([line["round"] for line in lines], kept["round"]) == ([*range(5)], 3)
    assert status is not None
    assert (status.state, status.round) == ("failed", 4)
    assert str(status.error).startswith("round 5")


@pytest.mark.parametrize("late", BOTH, ids=str)
def test_no_checkpoint_and_no_interruption_hides_a_divergence(tmp_path, late) -> None:
    """Rounds that nobody evaluates: what is unread is looked at before the state is saved."""
    with pytest.raises(Diverged, match="round 4"):
        _session(tmp_path / "due", late, every=(7, 5), after=_spoilt(4)).run()

    def before(done: int) -> None:
        if done == 4:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Diverged, match="round 4"):
        _session(tmp_path / "stopped", late, every=(7, 6), before=before, after=_spoilt(4)).run()
    for folder in ("due", "stopped"):
        assert not (tmp_path / folder / "checkpoint.pt").exists()


def test_a_lost_device_is_told_and_not_what_follows_from_it(tmp_path) -> None:
    class Lost(Late):
        def read(self, launch):
            def values():
                raise RuntimeError("CUDA error: again")

            return values if session.simulation.events else super().read(launch)

    def before(done: int) -> None:
        if done == 2:
            raise RuntimeError("CUDA error: first")

    session = _session(tmp_path, Lost(soon=True), before=before)
    with pytest.raises(RuntimeError, match="first"):
        session.run()


def test_every_bit_survives_the_packing() -> None:
    kept = {
        "whole": torch.tensor(2**53 + 1),
        "single": torch.tensor(0.1),
        "double": torch.tensor(0.1, dtype=torch.float64),
        "small": torch.tensor(7, dtype=torch.int32),
        "flag": torch.tensor(True),
        "inf": torch.tensor(-math.inf),
        "zero": torch.tensor(-0.0),
        "known": 3,
        "list": [1.5, 2.5],
    }
    parts = (kept, {}, {"nan": torch.tensor(math.nan), "largest": torch.tensor(2**63 - 1)})
    first, none, last = unpack(parts, pack(parts))
    assert first == numbers(kept)[0]
    assert first["whole"] == 2**53 + 1
    assert first["single"] == float(torch.tensor(0.1))
    assert (first["double"], first["small"], first["flag"], first["inf"]) == (0.1, 7, 1, -math.inf)
    assert math.copysign(1, first["zero"]) == -1
    assert (first["known"], first["list"], none) == (3, [1.5, 2.5], {})
    assert math.isnan(last["nan"])
    assert last["largest"] == 2**63 - 1
    assert {type(first[name]) for name in ("whole", "small", "flag")} == {int}
    assert unpack(({"only": 1},), pack(({"only": 1},))) == ({"only": 1},)


@pytest.fixture
def streams(monkeypatch) -> Streams:
    """Streams on a CPU, whose memory counts as pinned."""
    found = Streams()
    found.install(monkeypatch)
    monkeypatch.setattr(readings, "_pinned", lambda shape: torch.empty(shape, dtype=torch.int64))
    return found


def _short(folder: Path, how) -> Noting:
    return _session(folder, how, world.simulation(_fedavg(), world.with_batch_norm, rounds=3))


def test_a_session_with_a_side_stream_orders_all_that_it_must(tmp_path, streams) -> None:
    """Every operation of a run is held to the waits between the two streams, memory that is given again included."""
    _short(tmp_path / "at once", AtOnce()).run()
    with streams:
        _short(tmp_path / "aside", Aside(torch.device("cpu"))).run()
    _assert_same(tmp_path / "at once", tmp_path / "aside")
    assert streams.ran["side 0"] > 100
    # Each evaluation waits for its round, the host once for each evaluation, and the rounds for none.
    assert sorted(streams.log) == ["host waits"] * 4 + ["side 0 waits for main"] * 4


@pytest.mark.parametrize("fault", ["no wait", "no host wait"])
def test_the_clock_finds_what_is_not_ordered(tmp_path, streams, monkeypatch, fault) -> None:
    session = _short(tmp_path, Aside(torch.device("cpu")))
    if fault == "no wait":
        monkeypatch.setattr(clocked_streams.Stream, "wait_stream", lambda self, other: None)
    else:
        monkeypatch.setattr(clocked_streams.Event, "synchronize", lambda self: None)
    with pytest.raises(Race), streams:
        session.run()


@pytest.mark.parametrize("kept", [True, False])
def test_the_clock_finds_memory_that_is_given_again_too_early(streams, kept) -> None:
    with streams:
        side, main = torch.cuda.Stream(), torch.cuda.current_stream()
        mine = torch.ones(9) + 1
        side.wait_stream(main)
        with torch.cuda.stream(side):
            theirs = mine + 1
        if not kept:
            del mine
            with pytest.raises(Race, match="freed memory on main does not wait for operation 1 of side"):
                torch.ones(9)
            return
        torch.ones(9)
        main.wait_stream(side)
        del mine
        assert (theirs + 1).tolist() == [4] * 9


def test_what_an_evaluation_reads_is_kept_until_its_values_are_there(streams) -> None:
    """Also by nobody else: the session's own state and ledger have gone on by then."""
    tensor = torch.ones(1000)
    kept = weakref.ref(tensor)
    with streams:
        values = Aside(torch.device("cpu")).read(partial(lambda one: ({"sum": one.sum()},), tensor))
        del tensor
        assert kept() is not None
        assert values() == ({"sum": 1000},)
        del values
    assert kept() is None


EVERY = [(algorithm, world.masked_batch_norm) for algorithm in MASKS] + [
    (_fedavg(), world.mlp),
    *((make(Compressor(TopK(0.2, "index")), Compressor(Sign())), module) for make, module in TASKS),
]


@pytest.mark.parametrize(("algorithm", "module"), EVERY, ids=lambda one: getattr(type(one), "__name__", None))
def test_an_evaluation_is_read_back_in_one_transfer(tmp_path, streams, monkeypatch, algorithm, module) -> None:
    """Nothing is read in a run but one packed tensor an evaluation, and the ledger of the last checkpoint."""
    transfers = []
    pinned = readings._pinned
    monkeypatch.setattr(readings, "_pinned", lambda shape: transfers.append(shape) or pinned(shape))
    session = _session(tmp_path, Aside(torch.device("cpu")), _everybody(world.simulation(algorithm, module)), (1, 9))
    with Counter() as counter:
        session.run()
    assert len(transfers) == 5
    counts = len(counter.reads)
    assert set(counter.reads) <= {"aten::_local_scalar_dense"}
    assert counts <= 7  # counters of the ledger


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_on_a_gpu_the_side_stream_changes_no_bit(tmp_path, name, graphs) -> None:
    algorithm, module = METHODS[name]
    device = torch.device("cuda")
    for how in (AtOnce(), Aside(device)):
        sim = world.simulation(algorithm(), module, rounds=7)
        parts = list(torch.arange(sum(world.SIZES)).split(list(world.SIZES)))
        recorder = Recorder(CudaGraphs(device)) if graphs else None
        moved = {"dataset": sim.dataset.to(device), "shards": Shards.of(parts, device), "device": device}
        _session(tmp_path / type(how).__name__, how, world.variant(sim, recorder=recorder, **moved)).run()
    _assert_same(tmp_path / "AtOnce", tmp_path / "Aside")
