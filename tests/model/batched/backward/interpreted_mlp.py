"""Run by test_mlp_triton.py under TRITON_INTERPRET=1: loops in one launch beside the plain ones.

Products are summed in another order, and softmax is computed from the largest logit in another: after all steps of a
round no parameter, all of which are below 1, may differ by more than 2e-6.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from fedcomp.client.contract import LocalResult
from fedcomp.client.minibatch import MinibatchSolver
from fedcomp.client.sgd import Sgd
from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.model.batched.backward import mlp as mlp_backward
from fedcomp.model.loss import cross_entropy
from fedcomp.random.keys import Key
from fedcomp.simulation.chunks.client_data import ClientChunk, ClientShards
from fedcomp.simulation.cuda_graphs.fused_loop import FusedLoops

ALIKE, RAGGED = (20, 20, 20), (23, 17, 9, 1)
CASES = {
    "digits": ((64, 32, 10), True, ALIKE, Sgd(lr=0.1, batch_size=10)),
    "ragged": ((64, 32, 10), True, RAGGED, Sgd(lr=0.1, batch_size=4, weight_decay=0.1)),
    "no-bias": ((7, 5, 3), False, RAGGED, Sgd(lr=0.1, batch_size=16, epochs=2)),
    "replacement": ((20, 33, 4), True, ALIKE, Sgd(lr=0.1, batch_size=3, steps=5, replacement=True)),
}
MOST = 2e-6


def chunk(widths: tuple[int, int, int], bias: bool, sizes: tuple[int, ...]) -> ClientChunk:
    """Clients with samples of bytes, normalised by feature, or with one scale where there is no bias."""
    random, num = torch.Generator().manual_seed(0), sum(sizes)
    x = torch.randint(0, 17, (num, widths[0]), generator=random).to(torch.uint8)
    y = torch.randint(0, widths[2], (num,), generator=random)
    mean, std = (torch.rand(widths[0] if bias else 1, generator=random) + 3 for _ in range(2))
    data = Dataset("bytes", Samples(x, y), Samples(x, y), "classification", widths[2], mean, std)

    first, second = nn.Linear(widths[0], widths[1], bias=bias), nn.Linear(widths[1], widths[2], bias=bias)
    model = mlp_backward.Perceptron(nn.Sequential(nn.Flatten(), first, nn.ReLU(), second), cross_entropy)
    shards = ClientShards.of(list(torch.arange(num).split(list(sizes))), torch.device("cpu"))
    return ClientChunk(torch.arange(len(sizes)), np.array(sizes), Key(("round",)), data, shards, model)


class Refusing:
    """A runner that no loop may reach."""

    def run(self, *_: object) -> None:
        raise AssertionError("this loop was not run in one launch or call")


class Other:
    """A runner that notes which loops reach it."""

    def __init__(self, reached: list[str]) -> None:
        self.reached = reached

    def run(self, *_: object) -> None:
        self.reached.append("other")


def trained(data: ClientChunk, solver: MinibatchSolver, runner: Any) -> tuple[LocalResult, list[int]]:
    """What the clients end with, each from parameters of its own, and the samples that were counted of each."""
    theta, stats = data.model.init(Key())
    rows = theta.expand(len(data.sizes), -1) * torch.linspace(0.5, 1, len(data.sizes))[:, None]
    data = replace(data, loop_runner=runner, computed=[])
    found = solver.run(data, rows, stats.expand(len(rows), -1), (0, 1))
    return found, np.broadcast_to(data.gradients_of_each(), len(data.sizes)).tolist()


def assert_fused(data: ClientChunk, solver: MinibatchSolver, most: float) -> LocalResult:
    """Steps in one launch or call end where plain ones do, up to `most`, with as many samples counted."""
    (slow, counted), (fast, fused) = (trained(data, solver, runner) for runner in (None, FusedLoops(Refusing())))
    assert float((slow.value - fast.value).abs().max()) <= most
    torch.testing.assert_close(slow.loss, fast.loss, rtol=1e-6, atol=0)
    assert counted == fused
    return fast


def main() -> None:
    """Print the name of each case that agrees."""
    mlp_backward.has_triton = lambda device: True
    for name, (widths, bias, sizes, solver) in CASES.items():
        assert_fused(chunk(widths, bias, sizes), solver, MOST)
        print(name)


if __name__ == "__main__":
    main()
