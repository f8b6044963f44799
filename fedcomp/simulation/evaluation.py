"""Test metrics of the models that an algorithm deploys.

Shape legend: K models, D parameters, C running statistics, B batch, O outputs, S sums of a task, G groups of the
clients' samples, N' clients that are judged.
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from fedcomp.algorithm.contract import Models
from fedcomp.core.free_memory import total_bytes
from fedcomp.dataset.contract import Dataset
from fedcomp.evaluation.per_client import ClientSamples, fairness
from fedcomp.model.chunking import forward_bytes
from fedcomp.model.contract import AnyModel, Model, RowModel, TaskModel
from fedcomp.model.lora.moved import moved
from fedcomp.model.loss import evaluation_metrics, evaluation_sums, loss_of, metrics_of_sums, num_correct, num_sums
from fedcomp.runtime.workers import ProcessGroup, Workers

BATCH, GPU_BATCH = 1024, 4096
"""Test samples at once. A GPU computes the larger batch in hardly more time than the host needs to launch a batch."""
GPU_SHARE = 1 / 32
"""Of a GPU's memory, for the samples of a batch and their largest activations: a pass holds some copies of these."""
LOGITS = 1 << 27
"""Logits of a batch, where a token is predicted at every position: half a gigabyte."""
PIXELS = 1 << 18
"""Pixels of a batch, where a label is predicted for every pixel."""


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
    the batches of the test set. With `clients` also the metrics by client of the `test` models (`fairness`).
    """
    metrics: dict[str, Tensor] = {}
    for name, models in evaluation_models.items():
        if isinstance(model, TaskModel):
            metrics |= _own_metrics(name, models, model, dataset)
            continue
        judged = clients if name == "test" else None
        evaluator = _Evaluator.of(models, model, dataset, workers or Workers(), group or ProcessGroup())
        each = [evaluator.sums(theta, stats, judged) for theta, stats in zip(models.theta.to(dtype), models.stats)]
        num_test_sums = num_sums(dataset.judged_by, dataset.num_outputs)
        test_sums, client_sums = torch.stack(each).mean(0).split((num_test_sums, _num_groups(judged)))
        found = metrics_of_sums(dataset.judged_by, test_sums, len(dataset.test), dataset.classes_of_pixels)
        metrics |= {f"{name}/{metric}": value for metric, value in found.items()}
        if judged is not None:
            metrics |= fairness(dataset.task, judged.values(client_sums))
    return metrics


def client_values(
    models: Models, model: Model, dataset: Dataset, clients: ClientSamples, workers: Workers | None = None
) -> Tensor:
    """[N'] float64 accuracy (regression: loss) of each client that is judged, means over the K models."""
    evaluator = _Evaluator.of(models, model, dataset, workers or Workers(), ProcessGroup())
    rows = zip(models.theta.to(torch.float32), models.stats)
    each = [evaluator.client_sums(theta, stats, clients) for theta, stats in rows]
    return clients.values(torch.stack(each).mean(0))


def metrics_of_rows(models: Models, model: RowModel, dataset: Dataset, dtype: torch.dtype) -> dict[str, Tensor]:
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


def samples_at_once(model: Model, dataset: Dataset, device: torch.device) -> int:
    """Test samples that a network computes at once: on a GPU no more than a share of its memory holds.

    Of all its memory, not of what is free: a metric's last bits depend on the batch, and a run may resume.
    """
    batch = _batch_size(device)
    if device.type == "cuda":
        of_one = _forward_bytes(model, dataset.input_shape, dataset.input_dtype)
        batch = min(batch, 1 << max(0, int(GPU_SHARE * total_bytes(device) // of_one).bit_length() - 1))
    if dataset.task == "next_token":
        batch = min(batch, max(1, LOGITS // (dataset.num_outputs * math.prod(dataset.target_shape))))
    return min(batch, max(1, PIXELS // math.prod(dataset.target_shape))) if dataset.task == "segmentation" else batch


@functools.lru_cache(maxsize=8)
def _forward_bytes(model: Model, input_shape: tuple[int, ...], input_dtype: torch.dtype) -> int:
    """Bytes of a sample in a forward pass."""
    return forward_bytes(model, input_shape, 1, input_dtype)


def _batch_size(device: torch.device) -> int:
    """Test samples at once."""
    return GPU_BATCH if device.type == "cuda" else BATCH


def _own_metrics(name: str, models: Models, model: TaskModel, dataset: Dataset) -> dict[str, Tensor]:
    each = [
        model.metrics(theta, stats, dataset.inputs(dataset.test, _batch_size(theta.device)))
        for theta, stats in zip(models.theta, models.stats)
    ]
    return {f"{name}/{metric}": torch.stack([one[metric] for one in each]).mean() for metric in each[0]}


@dataclass(frozen=True)
class _Evaluator:
    """Runs one model over samples, batch by batch, and adds up what `evaluation_sums` says of each batch.

    Attributes:
        model: the network, over the base that the models have. dataset: has the test set and its normalisation.
        workers, group: the threads and the processes that share the batches.
        plain: the network over its own base, whose sizes are looked up.
    """

    model: Model
    dataset: Dataset
    workers: Workers
    group: ProcessGroup
    plain: Model

    @classmethod
    def of(cls, models: Models, model: Model, dataset: Dataset, workers: Workers, group: ProcessGroup) -> "_Evaluator":
        """For these models."""
        return cls(cast(Model, moved(model, models.change)), dataset, workers, group, model)

    def sums(self, theta: Tensor, stats: Tensor, clients: ClientSamples | None) -> Tensor:
        """[S + G] float64 of theta [D], stats [C]: `evaluation_sums` of the test set, then `client_sums` (or G = 0)."""
        task, test = self.dataset.judged_by, self.dataset.test
        same_samples = clients if clients is not None and clients.of_test else None  # then one forward pass is enough

        def batch_sums(first: int, size: int) -> Tensor:
            y = test.y[first : first + size]
            outputs = self._outputs(theta, stats, test.x[first : first + size])
            sums = evaluation_sums(task, outputs, y)
            return sums if same_samples is None else torch.cat((sums, same_samples.sums(task, outputs, y, first)))

        num = num_sums(task, self.dataset.num_outputs) + _num_groups(same_samples)
        sums = self._sum_of_batches(batch_sums, len(test), num, theta)
        if clients is None or same_samples is not None:
            return sums
        return torch.cat((sums, self.client_sums(theta, stats, clients)))

    def client_sums(self, theta: Tensor, stats: Tensor, clients: ClientSamples) -> Tensor:
        """[G] float64 sums of `scores` over each group of the clients' samples."""

        def batch_sums(first: int, size: int) -> Tensor:
            x, y = clients.batch(first, size)
            return clients.sums(self.dataset.judged_by, self._outputs(theta, stats, x), y, first)

        return self._sum_of_batches(batch_sums, len(clients), clients.num_groups, theta)

    def _outputs(self, theta: Tensor, stats: Tensor, x: Tensor) -> Tensor:
        """[B, O] outputs on raw samples, of which no more are normalised at once than the model computes."""
        parts = x.split(self.model.outputs_at_once(theta) or len(x))
        return torch.cat([self.model.outputs(theta, stats, self.dataset.normalise(part)) for part in parts])

    def _sum_of_batches(
        self, batch_sums: Callable[[int, int], Tensor], num_samples: int, num_sums: int, theta: Tensor
    ) -> Tensor:
        """[num_sums] float64: the sum over all batches of `batch_sums(first sample, batch size)`."""
        batch = samples_at_once(self.plain, self.dataset, theta.device)
        batches = np.arange(-(-num_samples // batch))[:, None]
        # With fewer batches than processes every process computes all of them.
        group = self.group if len(batches) >= self.group.size else ProcessGroup()
        shares = group.split(list(batches), lambda _: 1)
        own = shares[group.rank]
        sums = theta.new_zeros(len(batches), num_sums, dtype=torch.float64)
        for number, found in zip(own, self.workers.map(lambda one: batch_sums(int(one[0]) * batch, batch), own)):
            sums[int(number[0])] = found
        return group.gather(sums, shares).sum(0)


def _num_groups(clients: ClientSamples | None) -> int:
    return 0 if clients is None else clients.num_groups
