"""What every model must pass: it is trained by FedAvg on a few samples, in ways that must not matter."""

from collections.abc import Callable
from typing import Any

import torch

from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.check import world
from fedcomp.check.algorithm import AlgorithmCase, check_chunks, check_learns, check_one_client, check_zeros
from fedcomp.check.failed import require, require_same
from fedcomp.check.trajectory import check_repeat, check_resume, check_wire
from fedcomp.client.sgd import Sgd
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.dataset.contract import Dataset
from fedcomp.server.sgd import Sgd as ServerSgd

ROUNDING = 1e-2
"""Largest distance of the models of two precisions, in units of how far training moved."""


def case_of(name: str, module: Callable[..., Any], data: Dataset, lr: float) -> AlgorithmCase:
    """A model that FedAvg trains without compression.

    Args:
        module: makes it, as in `fedcomp.model.build`. data: a few samples (`world.part_of`). lr: of local steps.
    """
    dense = Compressor(Dense())
    method = FedAvg(Sgd(lr=lr, batch_size=4), ServerSgd(), dense, dense)
    return AlgorithmCase(name, method, module=module, data=data)


def check_state(case: AlgorithmCase) -> None:
    """What a module computes follows from its parameters and buffers: it keeps nothing in attributes."""
    simulation = case.simulation()
    require_same("the same module, trained again", world.run(simulation), world.run(simulation))


def check_padding(case: AlgorithmCase) -> None:
    """Clients that are trained together, with batches padded to one size, end as those trained one after another."""
    check_chunks(case)


def check_precision(case: AlgorithmCase) -> None:
    """Training in float32 ends near training in float64."""
    simulation = case.simulation()
    start = simulation.init().theta.double()
    exact = world.run(world.in_float64(simulation)).theta.double()
    rounded = world.run(simulation).theta.double()
    moved, apart = torch.linalg.vector_norm(exact - start), torch.linalg.vector_norm(rounded - exact)
    require(apart <= ROUNDING * moved, f"4 rounds move the model by {moved:.3g}; the two end {apart:.3g} apart")


CHECKS = (
    check_state,
    check_repeat,
    check_padding,
    check_precision,
    check_wire,
    check_resume,
    check_learns,
    check_one_client,
    check_zeros,
)
"""Dropout is part of three of them: its masks are the same again, after a resume, and for any chunk."""
