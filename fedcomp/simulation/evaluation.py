"""Test metrics of the models that an algorithm deploys. Shape legend: K models, n test samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from fedcomp.algorithm.contract import Models
from fedcomp.dataset.contract import Dataset
from fedcomp.evaluation.per_client import ClientSamples, fairness
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
    clients: ClientSamples | None = None,
) -> dict[str, Tensor]:
    """Metrics `<name>/...` of every deployed name, means over its K models, as unsynchronised device scalars.

    Networks: `loss` and what `metrics_of_sums` adds to it on the test set, computed in `dtype`; mean IoU is that of all
    models' pixels together. `TaskModel` models: their own metrics. Threads (`workers`) and processes (`group`) share
    the batches of the test set. With `clients` also the figures by client of the `test` models (`fairness`).
    """
    workers, group = workers or Workers(), group or ProcessGroup()
    record: dict[str, Tensor] = {}
    for name, models in evaluation_models.items():
        if isinstance(model, TaskModel):
            record |= _own_metrics(name, models, model, dataset)
            continue
        thetas = models.theta if dtype == torch.float32 else models.theta.to(dtype)
        by = clients if name == "test" else None
        each = [_sums(theta, stats, model, dataset, workers, group, by) for theta, stats in zip(thetas, models.stats)]
        sums, of_groups = torch.stack(each).mean(0).split((num_sums(dataset.task, dataset.num_outputs), _groups(by)))
        found = metrics_of_sums(dataset.task, sums, len(dataset.test), dataset.classes_of_pixels)
        record |= {f"{name}/{metric}": value for metric, value in found.items()}
        if by is not None:
            record |= fairness(dataset.task, by.values(of_groups))
    return record


def client_values(
    models: Models,
    model: Model,
    dataset: Dataset,
    clients: ClientSamples,
    workers: Workers | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """[N'] float64 accuracy (regression: loss) of each client that is judged, means over the K models."""
    shared = workers or Workers(), ProcessGroup()
    rows = zip(models.theta.to(dtype), models.stats)
    each = [_group_sums(theta, stats, model, dataset, *shared, clients) for theta, stats in rows]
    return clients.values(torch.stack(each).mean(0))


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
    theta: Tensor,
    stats: Tensor,
    model: Model,
    dataset: Dataset,
    workers: Workers,
    group: ProcessGroup,
    clients: ClientSamples | None,
) -> Tensor:
    """[S + G] float64: `evaluation_sums` of one model over the test set, then those of the clients' groups."""
    task, test = dataset.task, dataset.test
    shared = clients if clients is not None and clients.of_test else None  # the same samples: one forward pass

    def part(first: int, size: int) -> Tensor:
        x, y = test.x[first : first + size], test.y[first : first + size]
        outputs = model.outputs(theta, stats, dataset.normalise(x))
        sums = evaluation_sums(task, outputs, y)
        return sums if shared is None else torch.cat((sums, shared.sums(task, outputs, y, first)))

    num = num_sums(task, dataset.num_outputs) + _groups(shared)
    sums = _sum_of_batches(part, len(test), num, theta, dataset, workers, group)
    if clients is None or shared is not None:
        return sums
    return torch.cat((sums, _group_sums(theta, stats, model, dataset, workers, group, clients)))


def _group_sums(
    theta: Tensor,
    stats: Tensor,
    model: Model,
    dataset: Dataset,
    workers: Workers,
    group: ProcessGroup,
    clients: ClientSamples,
) -> Tensor:
    """[G] float64 sums of one model's `scores` over the clients' groups."""

    def part(first: int, size: int) -> Tensor:
        x, y = clients.batch(first, size)
        return clients.sums(dataset.task, model.outputs(theta, stats, dataset.normalise(x)), y, first)

    return _sum_of_batches(part, len(clients), clients.num_groups, theta, dataset, workers, group)


def _groups(clients: ClientSamples | None) -> int:
    return 0 if clients is None else clients.num_groups


def _sum_of_batches(
    part: Callable[[int, int], Tensor],
    num_samples: int,
    num: int,
    theta: Tensor,
    dataset: Dataset,
    workers: Workers,
    group: ProcessGroup,
) -> Tensor:
    """[num] float64 sum of `part(first sample, batch size)` over all batches of n samples."""
    batch = _batch_size(theta.device)
    if dataset.task == "segmentation":
        batch = min(batch, max(1, PIXELS // math.prod(dataset.target_shape)))
    batches = np.arange(-(-num_samples // batch))[:, None]
    if len(batches) < group.size:  # too few to share: every process computes all
        group = ProcessGroup()
    shares = group.split(list(batches), lambda _: 1)
    mine = shares[group.rank]
    sums = theta.new_zeros(len(batches), num, dtype=torch.float64)
    for number, own in zip(mine, workers.map(lambda one: part(int(one[0]) * batch, batch), mine)):
        sums[int(number[0])] = own
    return group.gather(sums, shares).sum(0)
