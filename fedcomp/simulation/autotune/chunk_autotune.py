"""How many clients a CPU trains at once: one after another, or as many as each worker gets, by rounds on trial."""

from __future__ import annotations

import math
import time
from dataclasses import replace

from fedcomp.core.free_memory import free_bytes
from fedcomp.model.chunking import client_bytes
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger

MEMORY_SHARE = 0.5
"""Of the free memory, what all clients that are trained at once may need."""
GAIN = 0.95
"""Another size is taken if a round needs at most this share of the time."""


def fastest_chunk(simulation: Simulation, batch_size: int, most_clients: int) -> int | None:
    """The chunk size with the faster round: that of the simulation, or a worker's share of the cohort if it fits.

    None: the share is no more. Of each the second of two rounds is timed; their results are dropped.

    Args:
        batch_size: samples of a client's step. most_clients: largest cohort.
    """
    plain, share, data = simulation.chunk_size, math.ceil(most_clients / simulation.workers.num), simulation.dataset
    needed = most_clients * client_bytes(simulation.model, data.input_shape, batch_size, data.input_dtype)
    if share <= plain:
        return None
    if needed > MEMORY_SHARE * free_bytes(simulation.device):
        return plain
    return share if _seconds(simulation, share) <= GAIN * _seconds(simulation, plain) else plain


def _seconds(simulation: Simulation, chunk_size: int) -> float:
    trial, index = replace(simulation, chunk_size=chunk_size), simulation.first_round
    seconds = 0.0
    for _ in range(2):
        state, cohort, began = trial.init(), trial.cohort(index), time.perf_counter()
        trial.attempt(index, state, cohort, Ledger())
        seconds = time.perf_counter() - began
    return seconds
