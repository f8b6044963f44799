"""How a network's convolutions are computed, and how many clients at once, and how: measured before the first round.

Forms round differently, so a run keeps its plan in its folder: when it resumes, it computes as before.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fedcomp.core.accelerated import Form, check_usable, is_safe
from fedcomp.core.first_line import first_line
from fedcomp.core.validate import check_choice
from fedcomp.model.tunable import FORMS, ClientForms, TunableModel, TunableOperation, Workload
from fedcomp.provenance.machine import processor
from fedcomp.simulation.autotune.chunk_autotune import fastest_at_once
from fedcomp.simulation.autotune.plan import GAIN, Plan
from fedcomp.simulation.autotune.timing_cache import Seconds, cached_timings, seconds_of
from fedcomp.simulation.cuda_graphs.capture import CudaGraphs, can_capture
from fedcomp.simulation.simulation import Simulation

log = logging.getLogger("fedcomp")

MODES = ("auto", "measure", "off", *FORMS)
CPU_CHUNKS = (1, 2)
"""Chunk sizes that are measured on a CPU; larger chunks do not fit into its cache (`model/chunking.py`)."""


def plan_convolutions(
    simulation: Simulation, mode: str, batch_size: int, fixed_chunk: bool, path: Path | None
) -> Plan | None:
    """The plan of a simulation; None: none is needed, as on a CPU, where the chunk size depends on the model alone.

    A plan in `path` is read, so that a resumed run computes as before, whatever memory is free then. What was measured,
    and on a GPU any plan, is written there. A form is chosen only if it agrees with the grouped one.

    Args:
        mode: auto (on a GPU the cached timings of this kind of GPU, else measured; on a CPU as off), measure (on any
            device, without cached timings; of other networks on a CPU the chunk size, and of those with `ClientForms`
            on any device in which of these), off (grouped), or one of `FORMS` for all convolutions.
        batch_size: samples of a client's step.
        fixed_chunk: whether the user has set the chunk size, which then stays.
        path: of the run's plan; None: it is neither read nor written.
    Raises:
        ValueError: no such mode.
    """
    check_choice("plan", mode, MODES)
    model, device = simulation.model, simulation.device
    if path is not None and path.exists():
        return Plan.read(path)
    most_clients = math.ceil(simulation.expected_cohort)
    on_cpu, size = device.type == "cpu", min(simulation.chunk_size, most_clients)
    alone, tunable = simulation.group.size == 1, isinstance(model, TunableModel) and bool(model.conv_algorithms)
    has_choice = (on_cpu or isinstance(model, ClientForms)) and not tunable
    if mode == "measure" and has_choice and alone and not (fixed_chunk or is_safe()):
        fastest = fastest_at_once(simulation, batch_size)
        if fastest is not None:
            if path is not None:
                fastest.write(path)
            return fastest
    plain = is_safe() or mode == "off" or (mode == "auto" and on_cpu)
    if plain or not isinstance(model, TunableModel) or not model.conv_algorithms:
        plan = Plan((), simulation.chunk_size)
    elif mode in FORMS:
        work = Workload(size, batch_size, simulation.dataset.input_shape, device)
        proven = [mode if _agrees(one, mode, FORMS[0]) else FORMS[0] for one in model.tunable_operations(work)]
        plan = Plan(tuple(proven), simulation.chunk_size)
    else:
        tried: Sequence[int] = CPU_CHUNKS if device.type == "cpu" and not fixed_chunk else (size,)
        shape, graphs = simulation.dataset.input_shape, simulation.loop_runner is not None and can_capture(device)
        sizes = [Workload(clients, batch_size, shape, device) for clients in tried if clients <= most_clients]
        plan = measure_plan(model, sizes, ignore_cache=mode == "measure", graphs=graphs)
        if plan.chunk_size == size:
            plan = replace(plan, chunk_size=simulation.chunk_size)
    if path is not None and (plan.forms or not on_cpu):
        plan.write(path)
    return plan if plan.forms or not on_cpu else None


def measure_plan(model: TunableModel, sizes: Sequence[Workload], ignore_cache: bool, graphs: bool) -> Plan:
    """The fastest form of each convolution for each candidate chunk size, and the fastest chunk size.

    Changes the model's forms; `Plan.applied_to` sets them.

    Args:
        sizes: a step for each candidate chunk size. ignore_cache: measure even if timings are cached.
        graphs: measure within CUDA graphs, in which launches cost nearly nothing.
    """
    forms: dict[int, tuple[str, ...]] = {}
    for size in sizes:
        model.set_conv_algorithms(FORMS[:1] * len(model.conv_algorithms))
        operations = model.tunable_operations(size)
        forms[size.clients] = tuple(_fastest_form(one, size.device, ignore_cache, graphs) for one in operations)
    if len(forms) == 1:
        return Plan(forms[sizes[0].clients], sizes[0].clients)

    def measure() -> Seconds:
        return {str(size.clients): _client_seconds(model, size, forms[size.clients]) for size in sizes}

    question = _circumstances(sizes[0].device) | model.tuning_key(sizes[0]) | {"clients": list(forms)}
    chosen = int(_fastest(cached_timings(question, measure, ignore_cache)))
    return Plan(forms[chosen], chosen)


def _fastest_form(operation: TunableOperation, device: torch.device, ignore_cache: bool, graphs: bool) -> str:
    if len(operation.candidates) == 1:
        return operation.candidates[0]
    question = _circumstances(device) | operation.about | {"forms": operation.candidates, "graphs": graphs}
    seconds = dict(cached_timings(question, partial(_time_forms, operation, device, graphs), ignore_cache))
    plain = next(form for form in operation.candidates if math.isfinite(seconds[form]))
    while not _agrees(operation, best := _fastest(seconds), plain):
        del seconds[best]
    return best


def _agrees(operation: TunableOperation, form: str, plain: str) -> bool:
    """Whether output and gradients in this form are those in the plain one."""
    about = f"weights {operation.about['weight']} on inputs {operation.about['input']}"
    works = partial(operation.run, form), partial(operation.run, plain)
    tried = Form(f"{form} convolutions", plain)
    return form == plain or tried.agrees(about, *works, operation.tolerance, exact=operation.exact)


def _time_forms(operation: TunableOperation, device: torch.device, graphs: bool) -> Seconds:
    """Seconds of each form, forwards and backwards; infinite where it fails."""

    def seconds(form: str) -> float:
        def work() -> None:
            operation.run(form)

        try:
            graph = CudaGraphs(device, f"measuring of {form} convolutions").capture(work, ()) if graphs else work
            return seconds_of(graph, device)
        except RuntimeError as error:  # no such kernel for these sizes, or no memory for it
            check_usable(error)
            failed[form] = error
            log.info("no %s convolutions here: %s", form, first_line(error))
            return math.inf

    failed: dict[str, RuntimeError] = {}
    found = {form: seconds(form) for form in operation.candidates}
    if len(failed) == len(found):
        raise next(iter(failed.values()))
    return found


def _client_seconds(model: TunableModel, size: Workload, forms: Sequence[str]) -> float:
    """Seconds of a step divided by its number of clients."""
    model.set_conv_algorithms(forms)
    return seconds_of(model.step(size), size.device) / size.clients


def _circumstances(device: torch.device) -> dict[str, Any]:
    """What every measurement depends on, whatever is measured."""
    return {
        "device": processor(device),
        "torch": torch.__version__,
        "threads": torch.get_num_threads() if device.type == "cpu" else 0,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "tf32": [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32],
    }


def _fastest(seconds: Seconds) -> str:
    """The fastest candidate; the first one unless another gains enough (GAIN)."""
    first = next(iter(seconds))
    best = min(seconds, key=lambda name: seconds[name])
    return best if seconds[best] <= GAIN * seconds[first] else first
