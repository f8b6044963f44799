"""Test metrics where every client has a model of its own: each is judged by its client's samples, and none is pooled.

Shape legend: N clients in all, N' of them that are judged, G groups of samples.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Models
from fedcomp.dataset.contract import Dataset
from fedcomp.evaluation.per_client import PREFIX, ClientSamples, fairness, quantity
from fedcomp.evaluation.personal import PersonalModels
from fedcomp.model.contract import Model
from fedcomp.runtime.workers import ProcessGroup, Workers
from fedcomp.simulation.evaluation import metrics_of


@dataclass(frozen=True)
class PersonalTest:
    """Whom which samples judge.

    Attributes:
        model: the network. tests: a dataset for each of the G groups, whose test samples are the group's.
        clients: numbers of the N' clients.
        groups: of each client the groups that judge it, with their shares in its samples; one where they are its own.
        dtype: in which models are tested.
    """

    model: Model
    tests: tuple[Dataset, ...]
    clients: tuple[int, ...]
    groups: tuple[tuple[tuple[int, float], ...], ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, model: Model, dataset: Dataset, samples: ClientSamples, dtype: torch.dtype) -> "PersonalTest":
        """Clients judged by their samples."""
        shares = torch.eye(samples.num_groups) if samples.share is None else samples.share.cpu()
        groups = tuple(tuple((int(at), float(row[at])) for at in row.nonzero()[:, 0]) for row in shares)
        return cls(model, tuple(samples.tests(dataset)), tuple(samples.clients.tolist()), groups, dtype)

    def metrics(self, models: PersonalModels, workers: Workers, group: ProcessGroup) -> dict[str, Tensor]:
        """Of the clients that took part (before the first round: of all), as unsynchronised device scalars.

        `test/...`: means over these clients, each counted once. `per_client/...`: how they are spread (`fairness`), and
        `per_client/never_came`, how many of the N have not taken part and are left out.
        """
        came = [row for row, client in enumerate(self.clients) if models.took_part[client]]
        each = [self._metrics(row, models, workers, group) for row in came or range(len(self.clients))]
        stacked = {name: torch.stack([one[name] for one in each]) for name in each[0]}
        task = self.tests[0].task
        found = {name: values.mean() for name, values in stacked.items()}
        never = torch.tensor(float((~models.took_part).sum()))
        return found | fairness(task, stacked[f"test/{quantity(task)}"]) | {f"{PREFIX}/never_came": never}

    def _metrics(self, row: int, models: PersonalModels, workers: Workers, group: ProcessGroup) -> dict[str, Tensor]:
        """`test/...` of one client's model; with several groups, which are classes, a mean by their shares."""
        theta, stats = models.of_client(self.clients[row])
        own = {"test": Models(theta[None], stats[None])}
        found: dict[str, Tensor] = {}
        for at, share in self.groups[row]:
            metrics = metrics_of(own, self.model, self.tests[at], workers, self.dtype, group)
            found = {name: found.get(name, 0) + share * value for name, value in metrics.items()}
        return found
