"""How a device trains several clients: one after another, or at once, and in which way; by rounds on trial."""

import logging
import math
import time
from collections.abc import Iterator

import torch

from fedcomp.core.accelerated import check_usable
from fedcomp.core.first_line import first_line
from fedcomp.core.free_memory import free_bytes
from fedcomp.model.chunking import client_bytes
from fedcomp.model.tunable import VMAP, ClientForms
from fedcomp.simulation.autotune.plan import GAIN, Plan
from fedcomp.simulation.autotune.timing_cache import wait_for
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger

log = logging.getLogger("fedcomp")

MEMORY_SHARE = 0.5
"""Of the free memory, what all clients that are trained at once may need."""
VMAP_MEMORY = 2.4
"""How much more a client takes by vmap: 8 clients of Llamas of 0.7 and 10.7 million took 2.0 and 2.5 times as much."""


def fastest_at_once(simulation: Simulation, batch_size: int) -> Plan | None:
    """The choice with the fastest round: that of the simulation, unless another one gains enough and fits.

    On a CPU a worker's share of the cohort is tried, on a GPU what the simulation has, which is what fits; of models
    with `ClientForms` in each of their forms, and clients one after another. None: there is no other choice. Of each
    the second of two rounds is timed; their results are dropped.

    Args:
        batch_size: samples of a client's step.
    """
    plain, *others = _choices(simulation)
    if not others:
        return None
    data, free = simulation.dataset, MEMORY_SHARE * free_bytes(simulation.device)
    client = client_bytes(simulation.model, data.input_shape, batch_size, data.input_dtype)

    def fits(one: Plan) -> bool:
        at_once = min(math.ceil(simulation.expected_cohort), one.chunk_size * simulation.workers.num)
        return at_once * client * (VMAP_MEMORY if one.client_form == VMAP and one.chunk_size > 1 else 1) <= free

    if not (others := [one for one in others if fits(one)]):
        return plain
    seconds = {one: _seconds(simulation, one) for one in (plain, *others)}
    if isinstance(simulation.model, ClientForms):  # vmap may have been found not to work
        seconds = {one: taken for one, taken in seconds.items() if one.client_form in simulation.model.client_forms}
    plain.applied_to(simulation)
    best = min(seconds, key=seconds.__getitem__)
    return best if seconds[best] <= GAIN * seconds[plain] else plain


def _choices(simulation: Simulation) -> Iterator[Plan]:
    """What the simulation does, and what else it may do."""
    on_cpu, model, size = simulation.device.type == "cpu", simulation.model, simulation.chunk_size
    most_clients = math.ceil(simulation.expected_cohort)
    share = math.ceil(most_clients / simulation.workers.num) if on_cpu else min(size, most_clients)
    if not isinstance(model, ClientForms):
        yield Plan((), size)
        if on_cpu and size < share:
            yield Plan((), share)
        return
    plain = Plan((), size, model.client_form)
    yield plain
    if share > 1:
        found = [Plan((), 1, model.client_form), *(Plan((), share, form) for form in model.client_forms)]
        yield from (one for one in found if (min(size, share), plain.client_form) != (one.chunk_size, one.client_form))


def _seconds(simulation: Simulation, one: Plan) -> float:
    """Infinite where the round fails, as a form that needs more memory than it should."""
    trial, index = one.applied_to(simulation), simulation.first_round
    seconds = 0.0
    try:
        for _ in range(2):
            state, cohort, began = trial.init(), trial.cohort(index), time.perf_counter()
            trial.attempt(index, state, cohort, Ledger())
            wait_for(simulation.device)
            seconds = time.perf_counter() - began
    except torch.OutOfMemoryError as error:
        check_usable(error)
        log.info("%s is not taken: %s", one, first_line(error))
        return math.inf
    return seconds
