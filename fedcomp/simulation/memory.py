"""Whether a run fits into memory, asked before the first round."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Setup
from fedcomp.dataset.contract import Dataset
from fedcomp.keys import Key
from fedcomp.model.contract import Learnt, tensors_of
from fedcomp.state import flatten

GIB = 2.0**30


def state_bytes(algorithm: Algorithm, model: Learnt, num_clients: int) -> dict[str, int]:
    """Bytes of every part of the algorithm's state, without allocating it."""
    theta, stats = torch.empty(model.dim, device="meta"), torch.empty(model.num_stats, device="meta")
    setup = Setup(num_clients, tensors_of(model), Key())
    return {name: _bytes(tensor) for name, tensor in flatten(algorithm.init(theta, stats, setup)).items()}


def check_memory(
    algorithm: Algorithm,
    model: Learnt,
    dataset: Dataset,
    num_clients: int,
    largest_cohort: int,
    device: torch.device,
    repeats: int = 1,
) -> None:
    """Raise ValueError if the state, the cohort's rows and the data are more than the device has free.

    A round holds the old state and the new one, and four rows of D floats for each client of the cohort (what it
    starts from, its update, its message and what is decoded); activations are not counted. Of repetitions, each has a
    state of its own.
    """
    parts = state_bytes(algorithm, model, num_clients)
    state, largest = repeats * sum(parts.values()), max(parts, key=lambda name: parts[name])
    cohort = 4 * 4 * largest_cohort * model.dim
    data = sum(_bytes(tensor) for part in (dataset.train, dataset.test) for tensor in (part.x, part.y))
    needed = 2 * state + cohort + (data if device.type == "cuda" else 0)
    free = free_bytes(device)
    if needed > free:
        raise ValueError(
            f"the run needs about {needed / GIB:.1f} GiB on {device.type} but {free / GIB:.1f} GiB are free: "
            f"state {state / GIB:.2f} GiB (most of it {largest}), cohort of {largest_cohort} x {model.dim:,} parameters"
            f" {cohort / GIB:.2f} GiB; take fewer clients a round, a smaller model, or a method without client memories"
        )


def free_bytes(device: torch.device) -> int:
    """Bytes that can still be allocated on `device`."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo") as file:
            fields: dict[str, Any] = dict(line.split(":") for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
