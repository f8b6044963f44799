"""CUDA graphs without a GPU: on which streams their work runs, and what is left of a capture that fails."""

import contextlib
import gc
import weakref

import pytest
import torch

from fedcomp.simulation.cuda_graphs import capture
from fedcomp.simulation.cuda_graphs.capture import WARM_UP, CudaGraphs
from tests.simulation.clocked_streams import Stream, Streams


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
