"""The loss of each task, one number a sample, and the test metrics that follow from it.

Shape legend: M clients, B batch, O outputs, T the shape of one sample's targets, n test samples.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    """-log softmax(outputs)[y]: [M, B] from logits [M, B, O, *T] and int64 classes [M, B, *T].

    A mean over the targets of a sample, where it has several; the class axis lies where torch has it.
    """
    losses = functional.cross_entropy(outputs.flatten(0, 1), y.flatten(0, 1), reduction="none").view(y.shape)
    return losses if y.dim() == 2 else losses.flatten(2).mean(2)


def squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    """(1/O) sum_o (outputs_o - y_o)^2, without a half: [M, B] from outputs and targets [M, B, O]."""
    return (outputs - y.to(outputs.dtype)).square().mean(-1)


LOSSES: dict[str, Loss] = {
    "classification": cross_entropy,
    "regression": squared_error,
    "next_token": cross_entropy,
}


def loss_of(task: str) -> Loss:
    """The loss of a task: cross-entropy or squared error; ValueError for an unknown task."""
    if task not in LOSSES:
        raise ValueError(f"task is {task!r}; allowed are {', '.join(map(repr, LOSSES))}")
    return LOSSES[task]


def num_correct(outputs: Tensor, y: Tensor, axis: int) -> Tensor:
    """[..., B] share of each sample's targets that are predicted, from logits with the classes at `axis`.

    For one target a sample this is bool.
    """
    correct = outputs.argmax(axis) == y
    return correct if correct.dim() == axis else correct.flatten(axis).double().mean(axis)


def evaluation_metrics(task: str, total_loss: Tensor, correct: Tensor, num_samples: int) -> dict[str, Tensor]:
    """Metrics of a task by name: `loss`; `accuracy` of classes and tokens; `perplexity` exp(loss) of tokens.

    Args:
        total_loss: sum of the samples' losses, any shape. correct: sum of `num_correct`, same shape. num_samples: n.
    """
    found = {"loss": total_loss / num_samples}
    if task != "regression":
        found["accuracy"] = correct / num_samples
    if task == "next_token":
        found["perplexity"] = found["loss"].exp()
    return found


def client_mean(losses_MB: Tensor, weight: Tensor | None) -> Tensor:
    """[M] mean over each client's real samples (weight 1); 0 for a client that has none."""
    if weight is None:
        return losses_MB.mean(1)
    return (losses_MB * weight).sum(1) / weight.sum(1).clamp(min=1)
