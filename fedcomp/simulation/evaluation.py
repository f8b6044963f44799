"""Test metrics of the models that an algorithm deploys. Shape legend: K models, n test samples."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fedcomp.algorithm.contract import Models
from fedcomp.dataset.contract import Dataset
from fedcomp.model.contract import AnyModel, Model, RowModel, TaskModel
from fedcomp.model.loss import evaluation_metrics, evaluation_sums, loss_of, metrics_of_sums, num_correct, num_sums
from fedcomp.runtime.workers import ProcessGroup, Workers

BATCH, GPU_BATCH = 1024, 4096
"""Test samples at once. A GPU computes the larger batch in hardly more time than the host needs to launch a batch."""
PIXELS = 1 << 18
"""Pixels of a batch of pictures whose every pixel is predicted."""


def metrics_of(
    evaluation_models: Mapping[str, Models],
    model: AnyModel,
    dataset: Dataset,
    workers: Workers | None = None,
    dtype: torch.dtype = torch.float32,
    group: ProcessGroup | None = None,
) -> dict[str, Tensor]:
    """Metrics `<name>/...` of every deployed name, means over its K models, as unsynchronised device scalars.

    Networks: `loss` and what `metrics_of_sums` adds to it on the test set, computed in `dtype`; mean IoU is that of all
    models' pixels together. `TaskModel` models: their own metrics. Threads (`workers`) and processes (`group`) share
    the batches of the test set.
    """
    workers, group = workers or Workers(), group or ProcessGroup()
    record: dict[str, Tensor] = {}
    for name, models in evaluation_models.items():
        if isinstance(model, TaskModel):
            record |= _own_metrics(name, models, model, dataset)
            continue
        thetas = models.theta if dtype == torch.float32 else models.theta.to(dtype)
        sums = [_sums(theta, stats, model, dataset, workers, group) for theta, stats in zip(thetas, models.stats)]
        found = metrics_of_sums(dataset.task, torch.stack(sums).mean(0), len(dataset.test), dataset.classes_of_pixels)
        record |= {f"{name}/{metric}": value for metric, value in found.items()}
    return record


def metrics_of_rows(
    models: Models, model: RowModel, dataset: Dataset, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """What `metrics_of` says of each of K models by itself, float64 [K] by name: all at once, for models of rows."""
    test, loss = dataset.test, loss_of(dataset.task)
    theta, num = models.theta.to(dtype), len(models.theta)
    total, correct = torch.zeros(2, num, dtype=torch.float64, device=theta.device)
    batch = _batch_size(theta.device)
    for first in range(0, len(test), batch):
        y = test.y[first : first + batch].expand(num, *test.y[first : first + batch].shape)
        outputs = model.outputs_of_rows(theta, dataset.normalise(test.x[first : first + batch]))
        total += loss(outputs, y).sum(1, dtype=torch.float64)
        if dataset.task != "regression":
            correct += num_correct(outputs, y, 2).sum(1)
    return evaluation_metrics(dataset.task, total, correct, len(test))


def _batch_size(device: torch.device) -> int:
    return GPU_BATCH if device.type == "cuda" else BATCH


def _own_metrics(name: str, models: Models, model: TaskModel, dataset: Dataset) -> dict[str, Tensor]:
    each = [
        model.metrics(theta, stats, dataset.inputs(dataset.test, _batch_size(theta.device)))
        for theta, stats in zip(models.theta, models.stats)
    ]
    return {f"{name}/{metric}": torch.stack([one[metric] for one in each]).mean() for metric in each[0]}


def _sums(
    theta: Tensor, stats: Tensor, model: Model, dataset: Dataset, workers: Workers, group: ProcessGroup
) -> Tensor:
    """[S] float64: `evaluation_sums` of one model over the test set."""
    test, batch = dataset.test, _batch_size(theta.device)
    if dataset.task == "segmentation":
        batch = min(batch, max(1, PIXELS // math.prod(dataset.target_shape)))

    def part(number: np.ndarray) -> Tensor:
        first = int(number[0]) * batch
        x, y = test.x[first : first + batch], test.y[first : first + batch]
        return evaluation_sums(dataset.task, model.outputs(theta, stats, dataset.normalise(x)), y)

    batches = np.arange(-(-len(test) // batch))[:, None]
    if len(batches) < group.size:  # too few to share: every process computes all
        group = ProcessGroup()
    shares = group.split(list(batches), lambda _: 1)
    mine = shares[group.rank]
    sums = theta.new_zeros(len(batches), num_sums(dataset.task, dataset.num_outputs), dtype=torch.float64)
    for number, own in zip(mine, workers.map(part, mine)):
        sums[int(number[0])] = own
    return group.gather(sums, shares).sum(0)
