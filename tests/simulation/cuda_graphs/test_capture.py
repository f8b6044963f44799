"""CUDA graphs without a GPU: their work's streams, what is left of a capture that fails, what a recorder keeps."""

import contextlib
import gc
import weakref

import pytest
import torch

from fedcomp.client.sgd import Sgd
from fedcomp.participation.bernoulli import Bernoulli
from fedcomp.simulation.cuda_graphs import capture
from fedcomp.simulation.cuda_graphs import graphed_loop as recorded
from fedcomp.simulation.cuda_graphs.capture import WARM_UP, CudaGraphs
from fedcomp.simulation.cuda_graphs.graphed_loop import MOST_LOOPS, GraphedLoops
from fedcomp.simulation.cuda_graphs.static_step import StaticBuffers, room
from tests.conformance import world
from tests.simulation.clocked_streams import Stream, Streams
from tests.simulation.cuda_graphs.strict_capture import StrictCapture
from tests.simulation.cuda_graphs.test_graphed_loop import ALIKE, PLAIN, Double, states
from tests.thorough import thorough


class Graph:
    """Stands in for `torch.cuda.CUDAGraph`."""

    def replay(self) -> None:
        """Does nothing."""


class Capturing:
    """Stands in for `torch.cuda.graph`, down to what it leaves undone: the stream stays current if the end fails."""

    def __init__(self, streams: Streams, graph: Graph, pool: object, stream: Stream) -> None:
        self.streams, self.on = streams, torch.cuda.stream(stream)

    def __enter__(self) -> None:
        self.streams.log.append("capture")
        self.on.__enter__()

    def __exit__(self, kind, *rest) -> None:
        if kind is not None:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
        self.on.__exit__(None, None, None)


@pytest.fixture
def streams(monkeypatch) -> Streams:
    found = Streams()
    found.install(monkeypatch)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: found.log.append("clear"), raising=False)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, pool, stream: Capturing(found, graph, pool, stream))
    return found


class Work:
    """Adds 1 to a tensor, and notes where; fails the `last` time."""

    def __init__(self, last: int | None = None) -> None:
        self.total, self.where, self.last = torch.zeros(3), [], last

    def __call__(self) -> None:
        self.total += 1
        self.where.append(torch.cuda.current_stream().name)
        if len(self.where) == self.last:
            raise RuntimeError("operation not permitted when stream is capturing")


def test_work_is_warmed_up_and_captured_on_one_stream(streams) -> None:
    graphs, works = CudaGraphs(torch.device("cuda")), [Work(), Work()]
    with streams:
        for work in works:
            assert graphs.capture(work, [work.total]) is not work
    assert [work.where for work in works] == [["side 0"] * (WARM_UP + 1)] * 2
    assert [work.total.tolist() for work in works] == [[0] * 3] * 2
    assert streams.log == ["side 0 waits for main", "clear", "capture", "clear", "main waits for side 0"] * 2


@pytest.mark.parametrize("last", [1, WARM_UP + 1], ids=["warming up", "captured"])
def test_a_failure_leads_back_to_the_main_stream_and_is_told_once(streams, caplog, last) -> None:
    graphs, work, other = CudaGraphs(torch.device("cuda")), Work(last), Work()
    with streams:
        assert graphs.capture(work, [work.total]) is work
        assert torch.cuda.current_stream().name == "main"
        assert graphs.capture(other, [other.total]) is other
    assert work.total.tolist() == [0] * 3
    assert (other.where, streams.log[-2:]) == ([], ["clear", "main waits for side 0"])
    (record,) = caplog.records
    assert "cannot be captured as a CUDA graph" in record.message


def test_a_graph_whose_capture_failed_is_kept(streams, monkeypatch) -> None:
    """Torch's allocator may still refer to it."""
    monkeypatch.setattr(capture, "_FAILED", [])
    made: list[weakref.ref[Graph]] = []

    def noted() -> Graph:
        graph = Graph()
        made.append(weakref.ref(graph))
        return graph

    monkeypatch.setattr(torch.cuda, "CUDAGraph", noted)
    work = Work(WARM_UP + 1)
    with streams:
        CudaGraphs(torch.device("cuda")).capture(work, [work.total])
    gc.collect()
    assert [graph() is not None for graph in made] == [True]


def test_loops_are_recorded_once_and_kept_up_to_a_number() -> None:
    capture = StrictCapture()
    recorder = GraphedLoops(capture)
    solvers = [Sgd(lr=0.1, batch_size=10, momentum=0.1 * index) for index in range(MOST_LOOPS + 1)]
    twin = Double(world.mlp, ALIKE)
    for solver in solvers:
        for index in range(3):
            twin.run(solver, recorder, index)
    assert (capture.recorded, capture.replays) == (MOST_LOOPS + 1, 2 * MOST_LOOPS + 2)
    twin.run(solvers[-1], recorder, 2)
    assert capture.recorded == MOST_LOOPS + 1
    twin.run(solvers[0], recorder, 2)
    twin.run(solvers[0], recorder, 2)
    assert capture.recorded == MOST_LOOPS + 2


def test_pieces_are_kept_up_to_a_number(monkeypatch) -> None:
    monkeypatch.setattr(recorded, "MOST_GRAPHS", 1)
    capture, twin = StrictCapture(), Double(world.mlp, ALIKE)
    recorder, solver = GraphedLoops(capture), Sgd(lr=0.1, batch_size=4, epochs=3)  # pieces of 4 and 2 steps
    for index in range(3):
        fast, slow = twin.run(solver, recorder, index), twin.run(solver, None, index)
        assert torch.equal(fast.value, slow.value)
    assert capture.recorded == 0, "the other piece had dropped each before it came again"


@pytest.mark.parametrize("name", ["sgd", "fedmrn", *thorough(["adam", "fedpm"])])
def test_cohorts_of_any_size_share_a_loop(name, monkeypatch) -> None:
    """Its buffers grow with the largest cohort, and a piece is recorded when its like comes again."""
    made = []
    like = StaticBuffers.like.__func__
    monkeypatch.setattr(StaticBuffers, "like", classmethod(lambda cls, *given: made.append(1) or like(cls, *given)))
    capture, rounds = StrictCapture(), 24
    plain, repeated = (
        states(PLAIN[name], world.mlp, ALIKE, one, rounds=rounds, participation=Bernoulli(0.6))
        for one in (None, GraphedLoops(capture))
    )
    assert all(torch.equal(plain[part], repeated[part]) for part in plain)
    assert len(made) <= 3
    assert 0 < capture.recorded <= len(ALIKE) * 3
    assert capture.replays > rounds / 2


def test_room() -> None:
    assert [room(num) for num in (1, 7, 8, 15, 16, 17, 31, 33, 100, 1000)] == [1, 7, 8, 15, 16, 18, 32, 36, 104, 1024]
    assert all(num <= room(num) <= 1.125 * num for num in range(8, 2000))
