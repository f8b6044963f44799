"""Agents with linear least squares of their own, small enough to know everything about them.

Shape legend: L_n rows of agent n, D features, S steps, M agents of a chunk, B batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedcomp.client import Batching, LocalSolver
from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.model.build import build
from fedcomp.model.networks.linear import linear
from fedcomp.random.keys import Key
from fedcomp.simulation.chunks.client_data import ClientChunk, ClientShards

SIZES = (9, 7, 4, 1)
D = 3
LR = 0.1
START = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64)
KEY = Key(("regression",))


def dataset(num: int = sum(SIZES), noise: float = 0.3) -> Dataset:
    """Features in [-1, 1], a linear target with noise."""
    generator = torch.Generator().manual_seed(5)
    x = 2 * torch.rand(num, D, generator=generator) - 1
    y = x @ torch.tensor([[0.5], [-1.0], [2.0]]) + noise * torch.randn(num, 1, generator=generator)
    return Dataset("regression", Samples(x, y), Samples(x, y), "regression", 1)


def agents(sizes: tuple[int, ...] = SIZES) -> ClientChunk:
    """All agents as one chunk; agent n holds the next `sizes[n]` rows. Sizes must fall."""
    data = dataset(sum(sizes))
    model = build(partial(linear, bias=False), KEY, (D,), 1, "regression")
    shards = ClientShards.of(list(torch.arange(sum(sizes)).split(list(sizes))), torch.device("cpu"))
    return ClientChunk(torch.arange(len(sizes)), shards.sizes, KEY, data, shards, model)


def rows(data: ClientChunk, agent: int) -> tuple[Tensor, Tensor]:
    """(x [L_n, D], y [L_n, 1]) of one agent, in float64."""
    start, size = int(data.shards.start[agent]), int(data.shards.sizes[agent])
    train = data.dataset.train
    return train.x[start : start + size].double(), train.y[start : start + size].double()


def gradient(x: Tensor, y: Tensor, theta: Tensor) -> Tensor:
    """[D] of mean (x theta - y)^2, written out."""
    return 2 * x.T @ (x @ theta - y[:, 0]) / len(x)


def descend(x: Tensor, y: Tensor, theta: Tensor, steps: int, decay: float = 0.0, pull: float = 0.0) -> Tensor:
    """Where gradient descent with `LR` ends, with weight decay, and pulled to where it began."""
    start = theta
    for _ in range(steps):
        theta = theta - LR * (gradient(x, y, theta) + decay * theta + pull * (theta - start))
    return theta


def run(solver: LocalSolver, data: "ClientChunk | Chosen", start: Tensor = START) -> Tensor:
    """[M, D] where the agents of a chunk end, all of whom begin at `start`."""
    num = len(data.ids)
    return solver.run(data, start.expand(num, -1), torch.zeros(num, 0), (0, 1)).value


@dataclass(frozen=True)
class Chosen:
    """A chunk whose steps take the samples that a test says, `positions` [S, M, B]."""

    data: ClientChunk
    positions: Tensor
    loop_runner: None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.data, name)

    def batches(self, batching: Batching) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        assert len(self.positions) == batching.steps
        for positions in self.positions:
            yield *self.data.take(positions), None
