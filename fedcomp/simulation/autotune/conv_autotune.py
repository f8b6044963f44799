"""How a network's convolutions are computed, and for how many clients at once: measured before the first round.

Forms round differently, so a run keeps its plan in its folder: when it resumes, it computes as before.

Shape legend: M clients at once, D parameters, C running statistics, B batch.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedcomp.model.batched.convolution import FORMS, Convolution
from fedcomp.model.batched.layers import Pass, stack_images
from fedcomp.model.batched.stacked import Stacked
from fedcomp.model.batched.streams import can_fork
from fedcomp.model.loss import squared_error
from fedcomp.random.keys import Key
from fedcomp.records.atomic_write import write_atomically
from fedcomp.simulation.autotune.timing_cache import Seconds, cached_timings, device_name, seconds_of
from fedcomp.simulation.graphs.cuda_graphs import CudaGraphs, Work
from fedcomp.simulation.simulation import Simulation

log = logging.getLogger("fedcomp")

MODES = ("auto", "measure", "off", *FORMS)
FILE = "plan.json"
GAIN = 0.95
"""Another than the first candidate is taken if it needs at most this share of the first one's time."""
CPU_CHUNKS = (1, 2)
"""Clients at once that are tried on a CPU, where more of them fall out of the cache: `model/chunking.py`."""


@dataclass(frozen=True)
class ConvPlan:
    """The chosen algorithms.

    Attributes:
        forms: of each convolution, in order. chunk_size: clients at once.
    """

    forms: tuple[str, ...]
    chunk_size: int

    def applied_to(self, simulation: Simulation) -> Simulation:
        """The simulation with this plan. Its model, a `Stacked`, is changed in place."""
        assert isinstance(simulation.model, Stacked)
        simulation.model.set_conv_algorithms(self.forms)
        return replace(simulation, chunk_size=self.chunk_size)

    def __str__(self) -> str:
        return f"plan: chunks of {self.chunk_size}, convolutions {', '.join(self.forms)}"


def plan_convolutions(
    simulation: Simulation, mode: str, batch_size: int, most_clients: int, fixed_chunk: bool, path: Path | None
) -> ConvPlan | None:
    """The plan of a simulation's convolutions; None where nothing was chosen.

    Args:
        mode: auto (what was measured on such a GPU, else measured now; on a CPU as off), measure (now, on any device),
            off (grouped), or one of `FORMS` for all convolutions.
        batch_size: samples of a client's step. most_clients: that take part in a round.
        fixed_chunk: whether the number of clients at once is the user's, and stays.
        path: the run's own record of its plan; None: it keeps none.
    Raises:
        ValueError: no such mode.
    """
    if mode not in MODES:
        raise ValueError(f"plan={mode} must be one of {', '.join(MODES)}")
    model, device = simulation.model, simulation.device
    if not isinstance(model, Stacked) or not model.convolutions:
        return None
    if mode == "off" or (mode == "auto" and device.type == "cpu"):
        return None
    size = min(simulation.chunk_size, most_clients)
    if mode in FORMS:
        plan = ConvPlan((mode,) * len(model.convolutions), simulation.chunk_size)
    elif path is not None and path.exists():
        content = json.loads(path.read_text())
        plan = ConvPlan(tuple(content["forms"]), int(content["chunk_size"]))
    else:
        tried: Sequence[int] = CPU_CHUNKS if device.type == "cpu" and not fixed_chunk else (size,)
        candidates = [clients for clients in tried if clients <= most_clients]
        shape, graphs = simulation.dataset.input_shape, simulation.loop_runner is not None
        plan = measure_plan(model, device, shape, batch_size, candidates, mode == "measure", graphs)
        if plan.chunk_size == size:
            plan = replace(plan, chunk_size=simulation.chunk_size)
        if path is not None:
            write_atomically(path, json.dumps(asdict(plan)).encode())
    return plan


def measure_plan(
    model: Stacked,
    device: torch.device,
    shape: tuple[int, ...],
    batch: int,
    candidates: Sequence[int],
    anew: bool,
    graphs: bool,
) -> ConvPlan:
    """The fastest form of each convolution for each candidate number of clients, and the fastest of these numbers.

    Leaves the model with some of the measured forms. `shape`: of one sample. `anew`: whatever is known already.
    `graphs`: as pieces of CUDA graphs, in which launches cost nearly nothing.
    """
    forms: dict[int, tuple[str, ...]] = {}
    for clients in candidates:
        model.set_conv_algorithms(["grouped"] * len(model.convolutions))
        forms[clients] = tuple(_layer_forms(model, device, shape, batch, clients, anew, graphs))
    if len(forms) == 1:
        return ConvPlan(forms[candidates[0]], candidates[0])

    def measure() -> Seconds:
        return {
            str(clients): _client_seconds(model, device, shape, batch, clients, forms[clients]) for clients in forms
        }

    question = _about(model, device) | {"model": model.layers, "input": shape, "batch": batch, "clients": list(forms)}
    chosen = int(_fastest(cached_timings(question, measure, anew)))
    return ConvPlan(forms[chosen], chosen)


def _layer_forms(
    model: Stacked, device: torch.device, shape: tuple[int, ...], batch: int, clients: int, anew: bool, graphs: bool
) -> Iterator[str]:
    """The fastest form of each convolution, measured forwards and backwards on inputs of its own size."""
    theta, stats, x = _start(model, device, shape, batch, clients)
    state = Pass(model.parameters(theta), model.statistics(stats), None, True, model.products)
    x = stack_images(x)
    for layer in model.chain:
        if isinstance(layer, Convolution):
            if clients == 1 and device.type == "cpu":  # one client's grouped convolution is the plain one
                yield FORMS[0]
            else:
                question = _about(model, device) | {
                    "clients": clients,
                    "input": list(x.shape),
                    "weight": list(state.parameters[layer.weight].shape),
                    "forms": forms_on(device),
                    "graphs": graphs,
                    "layer": [layer.stride, layer.padding, layer.dilation, layer.groups, layer.bias is None],
                }
                yield _fastest(cached_timings(question, partial(_forms, layer, x, state, device, graphs), anew))
        with torch.no_grad():
            x = layer(x, state)


def forms_on(device: torch.device) -> tuple[str, ...]:
    """The forms that are worth measuring there; without streams, streamed is looped."""
    return FORMS if can_fork(device) else tuple(form for form in FORMS if form != "streamed")


def _forms(layer: Convolution, x: Tensor, state: Pass, device: torch.device, graphs: bool) -> Seconds:
    parameters = list(state.parameters)
    places = [place for place in (layer.weight, layer.bias) if place is not None]
    for place in places:
        parameters[place] = parameters[place].detach().clone().requires_grad_()
    x = x.detach().requires_grad_()
    leaves = [x, *(parameters[place] for place in places)]

    def both_ways(form: str) -> None:
        y = replace(layer, form=form)(x, replace(state, parameters=parameters))
        torch.autograd.grad(y, leaves, torch.ones_like(y))

    def seconds(form: str) -> float:
        work: Work = partial(both_ways, form)
        try:
            if graphs:
                work = CudaGraphs(device, f"measuring of {form} convolutions").capture(work, ())
            return seconds_of(work, device)
        except RuntimeError as error:  # no such kernel for these sizes, or no memory for it
            failed[form] = error
            log.info("no %s convolutions here: %s", form, str(error).strip().split("\n")[0])
            return math.inf

    failed: dict[str, RuntimeError] = {}
    found = {form: seconds(form) for form in forms_on(device)}
    if len(failed) == len(found):
        raise next(iter(failed.values()))
    return found


def _client_seconds(
    model: Stacked, device: torch.device, shape: tuple[int, ...], batch: int, clients: int, forms: Sequence[str]
) -> float:
    """Seconds of one client's gradient when so many are computed at once."""
    model.set_conv_algorithms(forms)
    theta, stats, x = _start(model, device, shape, batch, clients)
    y = torch.zeros(clients, batch, dtype=torch.int64, device=device)
    if model.loss is squared_error:
        y = model.outputs(theta[0], stats[0], x[0]).expand(clients, -1, -1)
    return seconds_of(lambda: model.gradient(theta, stats, x, y), device) / clients


def _start(
    model: Stacked, device: torch.device, shape: tuple[int, ...], batch: int, clients: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Parameters [M, D], statistics [M, C] and inputs [M, B, C, H, W] to measure with."""
    theta, stats = (part.to(device).expand(clients, -1).contiguous() for part in model.init(Key(("plan",))))
    channels, height, width = shape
    x = torch.ones(clients, batch, height, width, channels, device=device).movedim(-1, -3)
    return theta, stats, x


def _about(model: Stacked, device: torch.device) -> dict[str, Any]:
    """What every measurement depends on."""
    return {
        "device": device_name(device),
        "torch": torch.__version__,
        "threads": torch.get_num_threads() if device.type == "cpu" else 0,
        "products": str(model.products),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "tf32": [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32],
    }


def _fastest(seconds: Seconds) -> str:
    """The fastest candidate, but the first one unless another gains something."""
    first = next(iter(seconds))
    best = min(seconds, key=lambda name: seconds[name])
    return best if seconds[best] <= GAIN * seconds[first] else first
