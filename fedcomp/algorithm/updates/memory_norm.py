"""How long the memories of what messages left out are, beside the vectors that were to be sent.

`memory/norm` [M] is ||e_i|| of each client after its message, to be compared with `update/norm` [M]; the server's is
`memory/norm_down`, to be compared with `update/norm_down`, the length of what it sent. A memory that goes on growing
against what is sent says that messages do not keep up with it. Nothing is read from the device.

Shape legend: M clients of the cohort, D parameters.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Metrics
from fedcomp.compressor import Memory
from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import take_rows


def clients_memory(memory: Memory, cohort: Cohort, x: Tensor | None = None) -> Metrics:
    """`memory/norm` [M] of the cohort's clients after they sent; {} where they remember nothing.

    Args:
        x: [M, D] what they had to send, for methods that do not record `update/norm` otherwise.
    """
    if not memory.sender.shape[1:].numel():
        return {}
    found = {"memory/norm": lengths(take_rows(memory.sender, cohort))}
    return found if x is None else {**found, "update/norm": lengths(x)}


def servers_memory(memory: Memory, x: Tensor) -> Metrics:
    """`memory/norm_down` of the server after it sent x [D], and `update/norm_down` of x; {} without a memory."""
    if not memory.sender.shape[1:].numel():
        return {}
    return {"memory/norm_down": lengths(memory.sender)[0], "update/norm_down": lengths(x[None])[0]}


def lengths(rows: Tensor) -> Tensor:
    """[M] ||row|| of rows [M, ...]."""
    return torch.linalg.vector_norm(rows.flatten(1), dim=1)
