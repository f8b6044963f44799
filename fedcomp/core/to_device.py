"""Copies numbers that the host knows to the run's device, without waiting for what the device has to do before."""

import numpy as np
import torch
from torch import Tensor

PAGEABLE_BYTES = 1 << 16
"""CUDA takes copies of up to 64 KB into a buffer of its own at once. For larger ones it waits, unless their memory is
pinned, which costs as much as a few small copies."""


def to_device(array: np.ndarray, device: torch.device) -> Tensor:
    """The array as a tensor on `device`. On a CPU it shares the array's memory."""
    return from_host(torch.from_numpy(array), device)


def from_host(host: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on `device`; on a CPU the tensor itself."""
    if device.type == "cuda" and host.nbytes > PAGEABLE_BYTES:
        host = host.pin_memory()  # torch reuses this memory no earlier than the copy is done
    return host.to(device, non_blocking=True)
