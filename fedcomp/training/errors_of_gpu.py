"""Errors of a GPU that has no memory left, or computes no more, in one line with the remedy."""

import contextlib
from collections.abc import Iterator

import torch

from fedcomp.core.accelerated import check_usable
from fedcomp.core.first_line import first_line
from fedcomp.model.contract import TaskModel
from fedcomp.simulation.evaluation import samples_at_once
from fedcomp.simulation.simulation import Simulation


@contextlib.contextmanager
def in_one_line(simulation: Simulation | None = None, batch_size: int | None = None) -> Iterator[None]:
    """Context manager: torch's errors of a GPU become a ValueError that says what to do.

    Args:
        simulation: that runs; None: it is being built. batch_size: of a client's step.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        remedy = "give a smaller chunk_size, client.batch_size or model, or fewer runs a GPU (launcher.runs_per_gpu)"
        takes = "" if simulation is None else f"{_what_takes_memory(simulation, batch_size)}: "
        raise ValueError(f"out of memory ({first_line(error)}): {takes}{remedy}") from error
    except torch.AcceleratorError as error:
        check_usable(error)
        raise


def _what_takes_memory(simulation: Simulation, batch_size: int | None) -> str:
    tested = ""
    if not isinstance(simulation.model, TaskModel):
        tested = (
            f", and tests {samples_at_once(simulation.model, simulation.dataset, simulation.device)} samples at once"
        )
    return f"the run trains up to {simulation.chunk_size} clients at once (chunk_size) on {batch_size} samples{tested}"
