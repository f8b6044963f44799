"""A GPU that is not there: torch's fake tensors say that they lie on `cuda:0`, and have shapes but no values.

What would fail on a GPU whatever the numbers fails here too: an operation on tensors of two devices, a value or a shape
that the host reads from the device. What cannot run is stood in for by the shape of its results: autograd's engine,
which asks for a real device, streams, and Triton's kernels for draws and for minimal random coding.
"""

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

from fedcomp.compressor import Compressor
from fedcomp.compressor.mrc import coder
from fedcomp.compressor.mrc.candidates import Prior
from fedcomp.compressor.rotations import order
from fedcomp.core.cohort import Cohort
from fedcomp.model.batched import streamed
from fedcomp.random import keys
from fedcomp.random.keys import Key
from fedcomp.runtime.workers import Workers
from fedcomp.simulation import evaluation
from fedcomp.simulation.chunks.client_data import ClientShards
from fedcomp.simulation.cuda_graphs.graphed_loop import GraphedLoops
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Payload
from tests.simulation.blocking import NoHost
from tests.trusting import trust

GPU = torch.device("cuda")
"""As `device=auto` finds it: without the number that tensors there have."""
READ = (DataDependentOutputException, DynamicOutputShapeException)
"""What a read raises."""


@contextmanager
def fake_gpu() -> Iterator[None]:
    """Inside, tensors may be made on `GPU`."""
    try:
        with _mode():
            yield
    finally:
        _forget()


def sorts(name: str, args: tuple[Any, ...]) -> bool:
    """Whether a deterministic GPU makes the scatter by sorting its indices: those of tensors that may repeat one."""
    scatters = name.rstrip("_") in ("aten::scatter", "aten::scatter_add") and isinstance(args[3], Tensor)
    return scatters and args[0].is_cuda and torch.are_deterministic_algorithms_enabled()


@contextmanager
def _mode() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, FakeTensorMode(allow_non_fake_inputs=True):
        patch.setattr(Payload, "check_range", lambda self: None)  # of the first round: there are no entries to read
        patch.setattr(Compressor, "check_finite", lambda *_: None)
        patch.setattr(order, "_steps", lambda size: tuple(range(1, order.STEPS + 1)))  # drawn on the host, and kept
        patch.setattr(keys, "has_triton", lambda device: device.type == "cuda")
        patch.setattr(keys, "_by_triton", _draw)
        patch.setattr(evaluation, "total_bytes", lambda device: 1 << 34)
        trust(patch)
        patch.setattr(coder, "choose", _choose)
        patch.setattr(coder, "count", _count)
        patch.setattr(torch.autograd, "grad", _grad)
        patch.setattr(streamed, "map_on_streams", lambda function, pieces, device: list(map(function, pieces)))
        yield


def _forget() -> None:
    """Empties fedcomp's caches: a table made inside has no values, and would serve what the process runs next."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "fedcomp":
            for one in vars(module).values():
                if isinstance(one, functools._lru_cache_wrapper):
                    one.cache_clear()


@dataclass(frozen=True)
class Drawn:
    """A participation whose cohorts were drawn before: drawing is the host's work, on numbers that are real."""

    cohorts: tuple[Cohort, ...]

    def sample(self, key: Key, importance: Tensor, round_index: int = 0) -> Cohort:
        """Round `round_index`'s."""
        return self.cohorts[round_index]


def drawn(simulation: Simulation, rounds: int) -> Simulation:
    """The simulation with the cohorts of its first rounds drawn."""
    return replace(simulation, participation=Drawn(tuple(simulation.cohort(index) for index in range(rounds))))


def moved(simulation: Simulation, capture: NoHost | None = None) -> Simulation:
    """The simulation on the GPU; `capture`: of local loops, which are repeated from static buffers; None: they run."""
    shards = simulation.shards
    return replace(
        simulation,
        dataset=simulation.dataset.to(GPU),
        shards=ClientShards(shards.order.to(GPU), shards.start.to(GPU), shards.sizes),
        device=GPU,
        workers=Workers(),
        loop_runner=None if capture is None else GraphedLoops(capture),
    )


def _grad(
    outputs: Tensor | tuple[Tensor, ...], inputs: Tensor | list[Tensor], *_: object, **__: object
) -> tuple[Tensor, ...]:
    assert all(one.is_cuda for one in ([outputs] if isinstance(outputs, Tensor) else outputs))
    return tuple(torch.zeros_like(one) for one in ([inputs] if isinstance(inputs, Tensor) else inputs))


def _draw(name: str, seed: int | Tensor, ids: Tensor, num: int, start: int) -> Tensor:
    assert ids.is_cuda
    assert isinstance(seed, int) or seed.is_cuda
    return torch.empty(len(ids), num, dtype=torch.int64 if name == "bits" else torch.float32, device=GPU)


def _choose(steps: Tensor, prior: Prior, coins: Tensor, repetitions: int, fraction: int) -> Tensor:
    assert all(one.is_cuda for one in (steps, prior.thresholds, prior.blocks.offsets, prior.candidates.keys, coins))
    return steps.new_zeros(len(steps), repetitions, prior.blocks.num, dtype=torch.int32)


def _count(indices: Tensor, prior: Prior, out: Tensor) -> None:
    assert all(one.is_cuda for one in (indices, prior.thresholds, prior.blocks.owner(), prior.candidates.keys, out))
    assert out.is_contiguous()
