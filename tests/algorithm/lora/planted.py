"""Rounds in which clients end where a test says, so that what a server makes of it can be computed by hand."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm
from fedcomp.client import LocalData, LocalResult
from fedcomp.client.sgd import Sgd
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.random.keys import Key
from fedcomp.simulation.simulation import Simulation
from tests.conformance import world
from tests.lora_networks import lora_mlp

RANKS = (2, 1, 3, 1, 2, 3, 1)
"""Of the seven clients; their sum is above every side of the adapted matrices, 5 x 6 and 6 x 3."""
SHARES = torch.tensor(world.SIZES) / sum(world.SIZES)
"""[N] p_k: of the samples."""


@dataclass(frozen=True)
class Planted(Sgd):
    """A local solver that ends at random parameters of the client's number.

    Attributes:
        started: where the clients began, [M, D] of each round, in the order of their numbers.
    """

    lr: float = 0.1
    started: list[Tensor] = field(default_factory=list)

    def run(self, data: LocalData, theta: Tensor, stats: Tensor, *_: Any, **__: Any) -> LocalResult:
        order = data.ids.argsort()
        self.started.append(theta[order].clone())
        return LocalResult(planted(data.ids, theta.shape[1]), stats.clone(), theta.new_zeros(len(theta)))


def planted(ids: Tensor, dim: int) -> Tensor:
    """[M, D] where clients end."""
    return Key(("planted",)).normal(ids, dim)


def planted_run(make: Callable[..., Algorithm], rank: int, rounds: int = 1, **options: Any) -> tuple[Any, ...]:
    """(simulation, state, solver) after rounds in which all seven clients take part."""
    solver, module = Planted(), partial(lora_mlp, rank=rank)
    sim = world.simulation(make(solver, **options), module, participation=world.FULL, rounds=rounds)
    return sim, world.run(sim), solver


def factors_of(sim: Simulation, ranks: tuple[int, ...] = RANKS) -> list[list[tuple[Tensor, Tensor]]]:
    """Of each matrix (A_k, B_k) of each client, in float64, with its own components alone."""
    rows = planted(torch.arange(len(ranks)), sim.model.dim).double()
    each = LoraLayout.of(sim.model.tensors).factors(rows)
    return [[(a[k, :r], b[k, :, :r]) for k, r in enumerate(ranks)] for a, b in each]


def products(sim: Simulation, theta: Tensor) -> list[Tensor]:
    """B A of each matrix of theta [D], in float64."""
    return [(b @ a)[0] for a, b in LoraLayout.of(sim.model.tensors).factors(theta[None].double())]
