"""PowerSGD under DDP all-reduces as many floats a step as torch's own hook."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as torchs
from torch.nn.parallel import DistributedDataParallel

from fedcomp.codecs import ddp
from fedcomp.model.networks.cnn import lenet5

STEPS = 4
"""torch's hook sends the gradients of the first two as they are."""


@pytest.fixture
def alone() -> Iterator[None]:
    """A group of this process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def _floats(model: nn.Module, x: Tensor, state: object, hook: object, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many floats are all-reduced in each step."""
    parallel = DistributedDataParallel(model)
    parallel.register_comm_hook(state, hook)
    plain, sizes = dist.all_reduce, list[int]()

    def counted(tensor: Tensor, *arguments: object, **options: object) -> object:
        assert tensor.dtype == torch.float32
        sizes.append(tensor.numel())
        return plain(tensor, *arguments, **options)

    monkeypatch.setattr(dist, "all_reduce", counted)
    found = []
    for _ in range(STEPS):
        sizes.clear()
        parallel(x).square().sum().backward()
        found.append(sum(sizes))
    monkeypatch.setattr(dist, "all_reduce", plain)
    return found


@pytest.mark.parametrize(("rank", "least"), [(1, 2), (2, 2), (4, 1)])
def test_powersgd_sends_as_many_floats_as_torchs_hook(alone, monkeypatch, rank: int, least: float) -> None:
    """`least`: torch's `min_compression_rate`, 2 by default. Ours is 1: a difference for conv1 of rank 4."""
    perceptron = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    for model, x in ((lenet5((1, 28, 28), 10), torch.randn(4, 1, 28, 28)), (perceptron, torch.randn(4, 64))):
        state = ddp.HookState(model, rank=rank)
        ours = _floats(model, x, state, ddp.powersgd_hook, monkeypatch)
        assert set(ours) == {state.count.bits // 32 // STEPS}
        options = {"matrix_approximation_rank": rank, "start_powerSGD_iter": 2, "min_compression_rate": least}
        theirs = _floats(model, x, torchs.PowerSGDState(None, **options), torchs.powerSGD_hook, monkeypatch)
        assert theirs[2:] == ours[2:]
        assert ours[-1] < sum(parameter.numel() for parameter in model.parameters()) / 2
