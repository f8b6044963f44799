"""Measured peak rates of a device, and the minimum work of a job."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from fedcomp.model.build import build
from fedcomp.model.chunking import num_activations
from fedcomp.random.keys import Key
from scripts.bench_jobs import Job

REPEATS = 10
SIDE, GPU_SIDE = 1024, 8192
"""Of the matrices that are multiplied."""
PASSES = 3
"""Products of a step over those of a forward pass: forward, and backward for inputs and for weights."""
PARAMETER_PASSES = 6
"""Memory accesses per parameter and step: two reads, gradient written and read, update read and written."""


@dataclass(frozen=True)
class Ceilings:
    """Measured rates of a device: bytes per second of a copy (read and written), operations per second of a product."""

    copy: float
    product: float


def measure(device: torch.device, precision: str) -> Ceilings:
    """The fastest of `REPEATS` copies of 64 MiB (256 on a GPU) and products of SIDE x SIDE (GPU_SIDE) matrices."""
    gpu = device.type == "cuda"
    source = torch.ones((256 if gpu else 64) << 18, device=device)
    target = torch.empty_like(source)
    side = GPU_SIDE if gpu else SIDE
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    a, b = (torch.randn(side, side, device=device, dtype=kind) for _ in range(2))  # of ones, a GPU is 13 % faster
    copied = 2 * source.numel() * source.element_size()
    return Ceilings(copied / _best(lambda: target.copy_(source), device), 2 * side**3 / _best(lambda: a @ b, device))


def least_bytes(job: Job) -> float:
    """Bytes that a round's local steps must move: activations twice, parameters `PARAMETER_PASSES` times."""
    model = build(job.factory, Key(("ceilings",)), job.shape, 10, "classification")
    step = 2 * job.batch * num_activations(model, job.shape) + PARAMETER_PASSES * model.dim
    return 4.0 * job.clients * job.steps * step


def operations(job: Job) -> float:
    """Floating-point operations of a round's convolutions and matrix products, forward and backward."""
    module = job.factory(job.shape, 10)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module.eval()(torch.zeros(1, *job.shape))
    return float(PASSES * counter.get_total_flops() * job.clients * job.batch * job.steps)


def _best(work: Callable[[], object], device: torch.device) -> float:
    best = float("inf")
    for _ in range(REPEATS):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - began)
    return best
