"""Test metrics of the models that an algorithm deploys. Shape legend: K models, n test samples."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Models
from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.model.contract import Model
from fedcomp.model.loss import loss_of

BATCH = 1024


def evaluate(deployed: Mapping[str, Models], model: Model, dataset: Dataset) -> dict[str, float]:
    """`<name>/loss` and, for classification, `<name>/accuracy` on the test set, averaged over the K models of a name."""
    record = {}
    for name, models in deployed.items():
        sums = torch.stack([_sums(theta, stats, model, dataset) for theta, stats in zip(models.theta, models.stats)])
        loss, correct = (sums.mean(0) / len(dataset.test)).tolist()
        record[f"{name}/loss"] = loss
        if dataset.task == "classification":
            record[f"{name}/accuracy"] = correct
    return record


def _sums(theta: Tensor, stats: Tensor, model: Model, dataset: Dataset) -> Tensor:
    """[2] float64: summed loss and number of correct predictions of one model."""
    total = torch.zeros(2, dtype=torch.float64, device=theta.device)
    test, loss = dataset.test, loss_of(dataset.task)
    for first in range(0, len(test), BATCH):
        part = Samples(test.x[first : first + BATCH], test.y[first : first + BATCH])
        outputs = model.outputs(theta, stats, dataset.normalise(part.x))
        total[0] += loss(outputs[None], part.y[None]).sum(dtype=torch.float64)
        if dataset.task == "classification":
            total[1] += (outputs.argmax(-1) == part.y).sum()
    return total
