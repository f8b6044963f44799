"""The loss of each task, one number a sample, and the test metrics that follow from it.

Shape legend: M clients, B batch, O outputs, T the shape of one sample's targets, L positions, n test samples, S sums;
for segmentation K classes, H height, W width, A outputs that a network has in training.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

Loss = Callable[[Tensor, Tensor], Tensor]
"""[M, B], one number a sample, from outputs and targets."""
BatchLoss = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""[M], one number a client, from outputs, targets and the places that hold a sample: not a mean over samples."""
_NO_CLASS = -100
"""Target that torch's cross-entropy leaves out: of tokens as `Dataset` has it, of pixels in place of `IGNORED`."""


def cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    """-log softmax(outputs)[y]: [M, B] from logits [M, B, O, *T] and int64 classes [M, B, *T].

    A mean over the targets of a sample, where it has several; the class axis lies where torch has it.
    """
    losses = functional.cross_entropy(_of_targets(outputs), y.flatten(), reduction="none").view(y.shape)
    return losses if y.dim() == 2 else losses.flatten(2).mean(2)


def token_cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    """As `cross_entropy`, over those of a sample's targets that are not -100; 0 where none is: [M, B]."""
    losses = functional.cross_entropy(_of_targets(outputs), y.flatten(), reduction="none", ignore_index=_NO_CLASS)
    return losses.view(*y.shape[:2], -1).sum(2) / (y != _NO_CLASS).flatten(2).sum(2).clamp(min=1)


def _of_targets(outputs: Tensor) -> Tensor:
    """Logits [M, B, O, *T] as [M B T, O], the order in which text models compute them and torch's loss is faster."""
    return outputs.movedim(2, -1).flatten(0, -2)


def squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    """(1/O) sum_o (outputs_o - y_o)^2, without a half: [M, B] from outputs and targets [M, B, O]."""
    return (outputs - y.to(outputs.dtype)).square().mean(-1)


def pixel_cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    """Mean over a picture's pixels of -log softmax(outputs)[y], 0 where no pixel has a class: [M, B].

    Args:
        outputs: logits [M, B, K, H, W], or [M, B, A, K, H, W] of A outputs in training, whose losses are added.
        y: [M, B, H, W] classes of any integer type; pixels of value K or more (255) have none and do not count.
    """
    outputs = outputs[:, :, None] if outputs.dim() == y.dim() + 1 else outputs
    counts = y < outputs.shape[3]
    classes = y.long().masked_fill(~counts, _NO_CLASS)[:, :, None].expand(-1, -1, outputs.shape[2], -1, -1)
    losses = functional.cross_entropy(
        outputs.flatten(0, 2), classes.flatten(0, 2), reduction="none", ignore_index=_NO_CLASS
    )
    return losses.reshape(*y.shape[:2], -1).sum(2) / counts.flatten(2).sum(2).clamp(min=1)


def absent_cross_entropy(outputs: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
    """[M] mean loss over each client's pixels; those without a class are of any class that its batch lacks.

    With P the classes in the labels of the client's real pictures and p = softmax(outputs), a pixel of class c costs
    -log p_c, and one without a class -log sum_{k not in P} p_k; the latter do not count where P has all classes. It is
    the "back" loss of J. Miao et al., "FedSeg: class-heterogeneous federated learning for semantic segmentation", CVPR
    2023, in log space, without the 1e-7 that its program adds to probabilities.

    Args:
        outputs, y: as in `pixel_cross_entropy`.
        weight: [M, B] of 0 and 1 (real pictures); None: all are.
    """
    outputs = outputs[:, :, None] if outputs.dim() == y.dim() + 1 else outputs
    num_classes = outputs.shape[3]
    real = torch.ones_like(y, dtype=torch.bool) if weight is None else (weight > 0)[:, :, None, None].expand(y.shape)
    labelled = real & (y < num_classes)
    present = torch.stack([(labelled & (y == label)).flatten(1).any(1) for label in range(num_classes)], 1)
    all_present = present.all(1)
    counts = torch.where(all_present[:, None, None, None], labelled, real)
    log_p = outputs.log_softmax(3)
    hidden = (present & ~all_present[:, None])[:, None, None, :, None, None]  # never all: log 0 has no gradient
    absent = log_p.masked_fill(hidden, -torch.inf).logsumexp(3)
    classes = y.long().clamp(max=num_classes - 1)[:, :, None, None].expand(-1, -1, outputs.shape[2], -1, -1, -1)
    own = log_p.gather(3, classes)[:, :, :, 0]
    losses = -torch.where(labelled[:, :, None], own, absent)
    total = losses.masked_fill(~counts[:, :, None], 0).flatten(1).sum(1)
    return total / counts.flatten(1).sum(1).clamp(min=1)


LOSSES: dict[str, Loss] = {
    "classification": cross_entropy,
    "regression": squared_error,
    "next_token": cross_entropy,
    "segmentation": pixel_cross_entropy,
}
SOME_TOKENS = "some_tokens"
"""What a dataset of the task next_token is judged by where some targets are -100, in place of its task."""


def training_loss(task: str, unlabelled: str, some_tokens: bool = False) -> Loss | BatchLoss:
    """The loss of a task in training. Raises ValueError for an unknown task.

    Args:
        unlabelled: as in `Dataset`: what pixels without a class cost; read for segmentation alone.
        some_tokens: whether there are targets of -100, which do not count.
    """
    if some_tokens:
        return token_cross_entropy
    return absent_cross_entropy if task == "segmentation" and unlabelled == "absent" else loss_of(task)


def loss_of(task: str) -> Loss:
    """The loss of a task, as in `LOSSES`, or of `SOME_TOKENS`. Raises ValueError for an unknown task."""
    if task == SOME_TOKENS:
        return token_cross_entropy
    if task not in LOSSES:
        raise ValueError(f"task is {task!r}; allowed are {', '.join(map(repr, LOSSES))}")
    return LOSSES[task]


def num_correct(outputs: Tensor, y: Tensor, axis: int) -> Tensor:
    """[..., B] share of each sample's targets that are predicted, from logits with the classes at `axis`.

    For one target a sample this is bool.
    """
    correct = outputs.argmax(axis) == y
    return correct if correct.dim() == axis else correct.flatten(axis).double().mean(axis)


def evaluation_metrics(task: str, total_loss: Tensor, correct: Tensor, num_samples: int | Tensor) -> dict[str, Tensor]:
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


def num_sums(task: str, num_outputs: int) -> int:
    """S, how many numbers `evaluation_sums` returns."""
    if task == SOME_TOKENS:
        return 5
    return 1 + num_outputs**2 if task == "segmentation" else 2


def evaluation_sums(task: str, outputs: Tensor, y: Tensor) -> Tensor:
    """[S] float64 sums over a batch of test samples, for `metrics_of_sums`.

    The loss, and the number of correct predictions. For segmentation: the loss of all pixels, then the confusion matrix
    [K, K], pixels of each class (rows) by predicted class. For `SOME_TOKENS`: the loss of all tokens that count, how
    many are predicted, their number, then the answers that are predicted whole, and the number of answers: runs of
    tokens that count.

    Args:
        task: of the dataset, or `SOME_TOKENS`. outputs: [B, O, *T]. y: targets of these samples.
    """
    losses = loss_of(task)(outputs[None], y[None])
    if task == SOME_TOKENS:
        counts = (y != _NO_CLASS).flatten(1)
        correct = (outputs.argmax(1) == y).flatten(1)
        total = (losses[0].double() * counts.sum(1)).sum()
        return torch.stack((total, *(n.double() for n in (correct.sum(), counts.sum(), *_whole(counts, correct)))))
    if task != "segmentation":
        total = losses.sum(dtype=torch.float64)
        correct = torch.zeros_like(total) if task == "regression" else num_correct(outputs, y, 1).sum()
        return torch.stack((total, correct.to(torch.float64)))
    num_classes = outputs.shape[1]
    counts = y < num_classes
    total = (losses[0].double() * counts.flatten(1).sum(1)).sum()
    cell = torch.where(counts, y.long() * num_classes + outputs.argmax(1), num_classes**2).flatten()
    confusion = torch.zeros(num_classes**2 + 1, dtype=torch.int64, device=y.device)
    confusion.index_add_(0, cell, torch.ones_like(cell))
    return torch.cat((total[None], confusion[:-1].double()))


def _whole(counts: Tensor, correct: Tensor) -> tuple[Tensor, Tensor]:
    """How many answers (runs of tokens that count) of a batch are right throughout, and how many there are.

    Args:
        counts: [B, L] whether a token counts. correct: [B, L] whether it is predicted; -100 never is.
    """
    starts = counts.clone()
    starts[:, 1:] &= ~counts[:, :-1]
    numbers = starts.flatten().cumsum(0)  # of answers, from 1
    wrong = torch.zeros(counts.numel() + 1, dtype=torch.bool, device=counts.device)
    wrong[numbers * (counts & ~correct).flatten()] = True
    num_answers = starts.sum()
    return num_answers - wrong[1:].sum(), num_answers


def metrics_of_sums(
    task: str, sums: Tensor, num_samples: int, classes: Mapping[int, str] = MappingProxyType({})
) -> dict[str, Tensor]:
    """Metrics of a task by name from `evaluation_sums` [S], added up over the n test samples.

    Those of `evaluation_metrics`. For `SOME_TOKENS`: `loss`, `accuracy` and `perplexity` of tokens that count, and
    `exact_match`, the share of answers that are predicted whole, each token from the true text before it. For
    segmentation, over all pixels that have a class: `loss`, `accuracy`, and `miou`, the mean intersection over union
    N_cc / (sum_p N_cp + sum_t N_tc - N_cc) of the classes c that occur in the pictures or in the predictions, N_tp the
    pixels of class t that are predicted as p; and that of each of `classes` (number -> name) itself, `iou/<name>`.
    """
    if task == SOME_TOKENS:
        loss, correct, num_tokens, whole, num_answers = sums.unbind()
        found = evaluation_metrics("next_token", loss, correct, num_tokens)
        return found | {"exact_match": whole / num_answers}
    if task != "segmentation":
        loss, correct = sums.unbind()
        return evaluation_metrics(task, loss, correct, num_samples)
    num_classes = round((len(sums) - 1) ** 0.5)
    confusion = sums[1:].view(num_classes, num_classes)
    hits, num_pixels = confusion.diagonal(), confusion.sum().clamp(min=1)
    union = confusion.sum(0) + confusion.sum(1) - hits
    iou = hits / union.clamp(min=1)
    return {
        "loss": sums[0] / num_pixels,
        "accuracy": hits.sum() / num_pixels,
        "miou": iou.sum() / (union > 0).sum().clamp(min=1),
        **{f"iou/{name}": iou[label] for label, name in classes.items()},
    }


def mean_loss(loss: Loss | BatchLoss, outputs: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
    """[M] mean loss of each client's batch, 0 for a client without real samples.

    The mean is over real samples (weight [M, B] is 1); for segmentation over the pixels of all real pictures that have
    a class, so that a picture counts by its number of such pixels; likewise over the tokens that are not -100.
    """
    if loss is absent_cross_entropy:
        return absent_cross_entropy(outputs, y, weight)
    loss = cast(Loss, loss)
    if loss in (pixel_cross_entropy, token_cross_entropy):
        counts = y < outputs.shape[-3] if loss is pixel_cross_entropy else y != _NO_CLASS
        numbers = counts.flatten(2).sum(2).to(outputs.dtype)
        weight = numbers if weight is None else weight * numbers
    return client_mean(loss(outputs, y), weight)


def client_mean(losses_MB: Tensor, weight: Tensor | None) -> Tensor:
    """[M] mean over each client's real samples (weight 1); 0 for a client that has none."""
    if weight is None:
        return losses_MB.mean(1)
    return (losses_MB * weight).sum(1) / weight.sum(1).clamp(min=1)


def exact_mean_loss(loss: Loss | BatchLoss, outputs: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
    """[M] float64 `mean_loss` of outputs that are raised to float64 first, for differences of nearly equal losses."""
    return mean_loss(loss, outputs.double(), y, None if weight is None else weight.double())
