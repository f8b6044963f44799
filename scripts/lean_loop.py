"""A federated loop without the overhead of the plain one: the second baseline for fedcomp's speed.

One client after another, as in `naive_loop.py`, but samples are gathered by index, parameters are views of one vector,
and a step is one gradient and one subtraction: no `DataLoader`, no `state_dict`, no optimizer. It uses no code of
fedcomp.
"""

import copy
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from scripts.naive_loop import ClientData


def lean_rounds(
    module: nn.Module, clients: Sequence[ClientData], batch_size: int, steps: int, lr: float
) -> Callable[[], None]:
    """A function that trains `module` in place by one round of FedAvg; arguments as in `naive_loop.naive_round`.

    Buffers, such as statistics of BatchNorm, are averaged too.
    """
    worker = copy.deepcopy(module).train()
    parameters, own = list(worker.parameters()), _flat(worker.parameters())
    start = _flat(module.parameters())
    kept = [buffer for buffer in module.buffers() if buffer.is_floating_point()]
    buffers = [buffer for buffer in worker.buffers() if buffer.is_floating_point()]

    def run() -> None:
        total, totals = torch.zeros_like(start), [torch.zeros_like(buffer) for buffer in kept]
        for x, y in clients:
            own.copy_(start)
            for buffer, first in zip(buffers, kept):
                buffer.copy_(first)
            for _, batch in zip(range(steps), _batches(len(y), batch_size, y.device)):
                grads = torch.autograd.grad(functional.cross_entropy(worker(x[batch]), y[batch]), parameters)
                own.sub_(torch.cat([grad.flatten() for grad in grads]), alpha=lr)
            total += own
            for summed, buffer in zip(totals, buffers):
                summed += buffer
        start.copy_(total / len(clients))
        for first, summed in zip(kept, totals):
            first.copy_(summed / len(clients))

    return run


def _flat(parameters: Iterator[nn.Parameter]) -> Tensor:
    """One vector; the parameters become views of it."""
    parts = list(parameters)
    vector = torch.cat([part.detach().flatten() for part in parts])
    for part, piece in zip(parts, vector.split([part.numel() for part in parts])):
        part.data = piece.view(part.shape)
    return vector


def _batches(num: int, size: int, device: torch.device) -> Iterator[Tensor]:
    """Sample indices of every batch, epoch after epoch."""
    while True:
        yield from torch.randperm(num, device=device).split(size)
