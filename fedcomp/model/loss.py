"""The loss of each task, one number a sample.

Shape legend: M clients, B batch, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    """-log softmax(outputs)[y]: [M, B] from logits [M, B, O] and int64 classes [M, B]."""
    return functional.cross_entropy(outputs.flatten(0, 1), y.flatten(), reduction="none").view(y.shape)


def squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    """(1/O) sum_o (outputs_o - y_o)^2, without a half: [M, B] from outputs and targets [M, B, O]."""
    return (outputs - y.to(outputs.dtype)).square().mean(-1)


def loss_of(task: str) -> Loss:
    """Cross-entropy for "classification", squared error for "regression"; ValueError otherwise."""
    if task == "classification":
        return cross_entropy
    if task == "regression":
        return squared_error
    raise ValueError(f"task is {task!r}; allowed are 'classification' and 'regression'")


def client_mean(losses_MB: Tensor, weight: Tensor | None) -> Tensor:
    """[M] mean over each client's real samples (weight 1); 0 for a client that has none."""
    if weight is None:
        return losses_MB.mean(1)
    return (losses_MB * weight).sum(1) / weight.sum(1).clamp(min=1)
