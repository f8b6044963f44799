"""How well a model does for each client, and how unevenly: the figures by which fairness is judged.

As in T. Li, M. Sanjabi, A. Beirami, V. Smith, "Fair resource allocation in federated learning", ICLR 2020: the mean
over clients, each counted once, the mean of the worst and of the best tenth of them, and the spread. There every client
has test samples of its own; here a client's are those of its owner where the data say so, else the test set with the
classes in the client's proportions. Given its class a sample of a partition by classes is drawn alike for all clients,
so that this is the accuracy to be expected on a client's own data. It costs no more than the accuracy of each class.

Shape legend: N clients, n samples, B batch, G groups of samples.
"""

import logging
import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedcomp.core.validate import as_typed
from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.model.loss import SOME_TOKENS, num_correct, squared_error

log = logging.getLogger("fedcomp")
Source = Literal["test", "train"]
PREFIX = "per_client"
"""Of the metrics' names."""
DECILE = 10


@dataclass(frozen=True)
class ClientSamples:
    """The samples that clients are judged by, in groups: a client's own, or those of each class.

    Attributes:
        samples: raw samples. index: [n] int64 numbers of those that are used; None: all, in their order.
        group: [n] int64 group of each sample used, 0 to G - 1.
        num_samples: [G] float64 samples of each group, 1 or more where a client has a share in it.
        share: [N', G] float64 of each client that is judged, rows sum to 1; None: group i is client i.
        clients: [N'] numbers of the clients that are judged: the others have no sample. On the host.
        of_test: whether `samples` are the whole test set in its order.
    """

    samples: Samples
    index: Tensor | None
    group: Tensor
    num_samples: Tensor
    share: Tensor | None
    clients: np.ndarray
    of_test: bool

    @property
    def num_groups(self) -> int:
        """G."""
        return len(self.num_samples)

    def __len__(self) -> int:
        return len(self.group)

    def batch(self, first: int, size: int) -> tuple[Tensor, Tensor]:
        """(raw x, y) of samples `first` to `first + size`."""
        if self.index is None:
            return self.samples.x[first : first + size], self.samples.y[first : first + size]
        chosen = self.index[first : first + size]
        return self.samples.x.index_select(0, chosen), self.samples.y.index_select(0, chosen)

    def sums(self, task: str, outputs: Tensor, y: Tensor, first: int) -> Tensor:
        """[G] float64 sums over the groups of `scores` of a batch that begins at sample `first`."""
        total = torch.zeros(self.num_groups, dtype=torch.float64, device=outputs.device)
        return total.index_add_(0, self.group[first : first + len(y)], scores(task, outputs, y))

    def values(self, sums: Tensor) -> Tensor:
        """[N'] float64 accuracy of each client (regression: loss) from the groups' sums [G]."""
        means = sums / self.num_samples.clamp(min=1)
        return means if self.share is None else self.share @ means

    def tests(self, dataset: Dataset) -> list[Dataset]:
        """The dataset with each of the G groups in place of its test samples."""
        groups = [(self.group == number).nonzero()[:, 0] for number in range(self.num_groups)]
        indices = [rows if self.index is None else self.index[rows] for rows in groups]
        return [replace(dataset, test=Samples(self.samples.x[one], self.samples.y[one])) for one in indices]


@dataclass(frozen=True)
class PerClient:
    """Accuracy by client, at every evaluation.

    Attributes:
        data: "test": a client's test samples are those of its owner, or the test set with the client's share of each
            class; "train": its own training samples.
    """

    data: Source = "test"

    def __post_init__(self) -> None:
        if self.data not in ("test", "train"):
            raise ValueError(f"evaluation.data={as_typed(self.data)} must be test or train")

    def samples(self, dataset: Dataset, order: Tensor, sizes: np.ndarray) -> ClientSamples:
        """Who is judged by which samples.

        Args:
            dataset: on the run's device. order: [n] int64 training samples, client after client. sizes: [N] of each.
        Raises:
            ValueError: the test samples can be told apart neither by owner nor by class, or nobody has any.
        """
        device = dataset.test.x.device
        client = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes))
        if self.data == "train":
            kept = np.flatnonzero(sizes)
            group = torch.from_numpy(np.repeat(np.arange(len(kept)), sizes[kept]))
            counts = torch.from_numpy(sizes[kept]).double()
            return ClientSamples(dataset.train, order, group.to(device), counts.to(device), None, kept, False)
        owners = _owners(dataset, order.cpu(), client, len(sizes))
        if owners is not None:
            return _by_owner(dataset, owners, device)
        labels = dataset.labels
        if labels is None or dataset.task != "classification":
            raise ValueError(
                f"evaluation=per_client cannot tell whose the test samples of dataset={dataset.name} are: they have "
                "neither one class each, nor owners that are clients; take evaluation.data=train"
            )
        return _by_class(dataset, labels[order.cpu()], client, len(sizes), device)

    def note_left_out(self, judged: ClientSamples, num_clients: int) -> None:
        """Say how many of N clients are judged, unless it is all of them."""
        if len(judged.clients) < num_clients:
            log.warning(
                f"evaluation=per_client judges {len(judged.clients):,} of {num_clients:,} clients: the others have no "
                "test samples, of their owner or classes",
                extra={"note": True},
            )


def scores(task: str, outputs: Tensor, y: Tensor) -> Tensor:
    """[B] float64: whether each sample is right (of several targets: how many), or the loss of a regression.

    Args:
        task: of the dataset, or `SOME_TOKENS`.
    """
    if task == "regression":
        return squared_error(outputs[None], y[None])[0].double()
    if task not in ("segmentation", SOME_TOKENS):
        return num_correct(outputs, y, 1).double()
    counts = (y < outputs.shape[1]) & (y >= 0)
    right = (outputs.argmax(1) == y) & counts
    return right.flatten(1).sum(1).double() / counts.flatten(1).sum(1).clamp(min=1)


def quantity(task: str) -> str:
    """What the values are: accuracy, or the loss of a regression."""
    return "loss" if task == "regression" else "accuracy"


def fairness(task: str, values: Tensor) -> dict[str, Tensor]:
    """The record's metrics of clients' values [N'] (accuracy, or loss), as unsynchronised device scalars.

    `mean`, every client counted once; `worst_decile`, `best_decile`: means of the ceil(N' / 10) worst and best;
    `std`: sqrt(mean (value - mean)^2).
    """
    num, name = math.ceil(len(values) / DECILE), f"{PREFIX}/{quantity(task)}"
    ordered = values.sort(descending=task == "regression").values
    return {
        f"{name}_mean": values.mean(),
        f"{name}_worst_decile": ordered[:num].mean(),
        f"{name}_best_decile": ordered[-num:].mean(),
        f"{name}_std": values.std(correction=0),
    }


def _owners(dataset: Dataset, order: Tensor, client: Tensor, num_clients: int) -> Tensor | None:
    """[N] int64 owner of each client's training samples (-1: it has none); None unless each client has one owner.

    Clients with the same owner, or a test set without owners, give None too.
    """
    if dataset.train.owner is None or dataset.test.owner is None:
        return None
    of_sample = dataset.train.owner[order]
    low = torch.full((num_clients,), torch.iinfo(torch.int64).max).scatter_reduce(0, client, of_sample, "amin")
    high = torch.full((num_clients,), -1).scatter_reduce(0, client, of_sample, "amax")
    alone = (low == high) | (high < 0)
    named = high[high >= 0]
    return high if bool(alone.all()) and len(named.unique()) == len(named) else None


def _by_owner(dataset: Dataset, owners: Tensor, device: torch.device) -> ClientSamples:
    """Each client judged by the test samples of its owner [N]."""
    assert dataset.test.owner is not None
    client_of = {int(owner): client for client, owner in enumerate(owners.tolist()) if owner >= 0}
    holder = torch.tensor([client_of.get(owner, -1) for owner in dataset.test.owner.tolist()])
    index = (holder >= 0).nonzero()[:, 0]
    if not len(index):
        raise ValueError(f"no client owns a test sample of dataset={dataset.name}: take evaluation.data=train")
    clients, group = holder[index].unique(return_inverse=True)
    counts = torch.bincount(group).double()
    return ClientSamples(
        dataset.test, index.to(device), group.to(device), counts.to(device), None, clients.numpy(), False
    )


def _by_class(
    dataset: Dataset, labels: Tensor, client: Tensor, num_clients: int, device: torch.device
) -> ClientSamples:
    """Each client judged by the test set's classes in its own proportions; `labels`, `client`: of training samples."""
    num_classes = dataset.num_outputs
    counts = torch.bincount(client * num_classes + labels, minlength=num_clients * num_classes)
    tested = torch.bincount(dataset.test.y.cpu(), minlength=num_classes)
    share = counts.view(num_clients, num_classes).double() * (tested > 0)
    clients = share.sum(1).nonzero()[:, 0]
    if not len(clients):
        raise ValueError(f"no class of the clients' samples is in the test set of dataset={dataset.name}")
    share = share[clients] / share[clients].sum(1, keepdim=True)
    group, number = dataset.test.y, tested.double().to(device)
    return ClientSamples(dataset.test, None, group, number, share.to(device), clients.numpy(), True)
