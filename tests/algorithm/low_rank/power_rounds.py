"""Rounds of PowerSGD on quadratics over two weight matrices and a bias."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context, Setup
from fedcomp.algorithm.low_rank.powersgd import PowerSGD
from fedcomp.core.cohort import Cohort
from fedcomp.core.parameter_layout import BIAS, WEIGHT, ParameterTensor
from fedcomp.random.keys import Key
from fedcomp.server.sgd import Sgd as ServerSgd
from fedcomp.wire import Ledger, Link
from tests.algorithm import quadratic

TENSORS = (ParameterTensor(96, WEIGHT, 8), ParameterTensor(12, BIAS), ParameterTensor(60, WEIGHT, 20))

DIM = 168


@dataclass(frozen=True)
class Matrices(quadratic.Quadratics):
    """Quadratics with curvature 1 over weight matrices of 12 x 8 and 3 x 20 and a bias: the change is b_i - theta."""

    tensors: tuple[ParameterTensor, ...] = field(default=TENSORS)


def make_clients(num: int = 4, spread: float = 1.0, seed: int = 0) -> Matrices:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(1, DIM, generator=generator) + spread * torch.randn(num, DIM, generator=generator)
    return Matrices(torch.ones(DIM), centres)


def power_sgd(**options: Any) -> PowerSGD:
    return PowerSGD(quadratic.STEP, ServerSgd(), **({"min_ratio": 0.0} | options))


def start(algorithm: Any, clients: Matrices) -> Any:
    return algorithm.init(torch.zeros(DIM), torch.zeros(0), Setup(clients.num_clients, TENSORS, Key(("power",))))


def one_round(
    algorithm: Any,
    clients: Matrices,
    state: Any,
    index: int,
    who: list[int],
    weight: Tensor | None = None,
    ledger: Ledger | None = None,
) -> Any:
    weight = torch.full((len(who),), 1 / len(who)) if weight is None else weight
    ctx = Context(index, 99, Key(("power", index)), Link(ledger or Ledger()), clients)
    return algorithm.round(state, Cohort.of(who, weight), ctx)
