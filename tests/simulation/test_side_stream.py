"""Evaluations on a side stream: every wait that must be there is, and a value is read once."""

import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from fedcomp.simulation import async_metrics as readings
from fedcomp.simulation.async_metrics import MetricsReader, SideStreamReader
from fedcomp.simulation.chunks.client_data import ClientShards
from fedcomp.simulation.cuda_graphs.capture import CudaGraphs
from fedcomp.simulation.cuda_graphs.graphed_loop import GraphedLoops
from fedcomp.training.session import Session
from tests.algorithm.conformance_cases import CASES
from tests.conformance import world
from tests.left import assert_same_run
from tests.operations import Operations, reads
from tests.simulation import clocked_streams
from tests.simulation.clocked_streams import Race, Streams
from tests.simulation.test_no_host_sync import everybody
from tests.training.sessions import METHODS, fedavg, session_in


@pytest.fixture
def streams(monkeypatch) -> Streams:
    """Streams on a CPU, whose memory counts as pinned."""
    found = Streams()
    found.install(monkeypatch)
    monkeypatch.setattr(readings, "_pinned", lambda shape: torch.empty(shape, dtype=torch.int64))
    return found


def _short(folder: Path, how) -> Session:
    return session_in(folder, how, world.simulation(fedavg(), world.with_batch_norm, rounds=3))


def test_a_session_with_a_side_stream_orders_all_that_it_must(tmp_path, streams) -> None:
    """Every operation of a run is held to the waits between the two streams, memory that is given again included."""
    _short(tmp_path / "at once", MetricsReader()).run()
    with streams:
        _short(tmp_path / "aside", SideStreamReader(torch.device("cpu"))).run()
    assert_same_run(tmp_path / "at once", tmp_path / "aside")
    assert streams.ran["side 0"] > 100
    # Each evaluation waits for its round, the host once for each evaluation and for the trial, the rounds for none.
    assert sorted(streams.log) == ["host waits"] * 5 + ["side 0 waits for main"] * 4


@pytest.mark.parametrize("fault", ["no wait", "no host wait"])
def test_the_clock_finds_what_is_not_ordered(tmp_path, streams, monkeypatch, fault) -> None:
    one = _short(tmp_path, SideStreamReader(torch.device("cpu")))
    if fault == "no wait":
        monkeypatch.setattr(clocked_streams.Stream, "wait_stream", lambda self, other: None)
    else:
        monkeypatch.setattr(clocked_streams.Event, "synchronize", lambda self: None)
    with pytest.raises(Race), streams:
        one.run()


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
        values = SideStreamReader(torch.device("cpu")).read(partial(lambda one: ({"sum": one.sum()},), tensor))
        del tensor
        assert kept() is not None
        assert values() == ({"sum": 1000},)
        del values
    assert kept() is None


EVERY = "fedavg-rice fedmrn fedmrn-all fedpm bicompfl_gr-reconstruct bicompfl_pr power kmeans-lossy mean-topk"


@pytest.mark.parametrize("name", EVERY.split())
def test_an_evaluation_is_read_back_in_one_transfer(tmp_path, streams, monkeypatch, name) -> None:
    """Nothing is read in a run but one packed tensor an evaluation, and the ledger of the last checkpoint."""
    transfers = []
    pinned = readings._pinned
    monkeypatch.setattr(readings, "_pinned", lambda shape: transfers.append(shape) or pinned(shape))
    (case,) = [case for case in CASES if case.name == name]
    sim = everybody(case.simulation())
    one = session_in(tmp_path, SideStreamReader(torch.device("cpu")), sim, (1, 9))
    with Operations(reads) as counter:
        one.run()
    assert len(transfers) == 5
    counts = len(counter.names)
    assert set(counter.names) <= {"aten::_local_scalar_dense"}
    assert counts <= 7  # counters of the ledger


@pytest.mark.gpu
@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_on_a_gpu_the_side_stream_changes_no_bit(tmp_path, name, graphs) -> None:
    algorithm, module = METHODS[name]
    device = torch.device("cuda")
    for how in (MetricsReader(), SideStreamReader(device)):
        sim = world.simulation(algorithm(), module, rounds=7)
        parts = list(torch.arange(sum(world.SIZES)).split(list(world.SIZES)))
        recorder = GraphedLoops(CudaGraphs(device)) if graphs else None
        moved = {"dataset": sim.dataset.to(device), "shards": ClientShards.of(parts, device), "device": device}
        session_in(tmp_path / type(how).__name__, how, replace(sim, loop_runner=recorder, **moved)).run()
    assert_same_run(tmp_path / "MetricsReader", tmp_path / "SideStreamReader")
