"""A downlink of a model in parts, of which each client is sent those that have changed since it last took part.

A client that took part in round t holds the model with which that round began. When it comes again, it is sent the
parts that rounds t, t + 1, ... have changed. The first model follows from the run's seed and costs nothing. So the
simulation has one model; a client that is apart (`Link.client`) keeps its own.

Shape legend: N clients in all, D parameters, P parts.
"""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context
from fedcomp.algorithm.downlinks.downlink import Downlink
from fedcomp.core.cohort import Cohort, Listed
from fedcomp.core.parameter_layout import ParameterSubset


@dataclass(frozen=True)
class PartChanges:
    """When what changed, on the host.

    Attributes:
        last: [N, 1] int64 round in which each client last took part, -1 for none.
        changed: [P] int64 round in which each part last changed, -1 for none.
    """

    last: Tensor
    changed: Tensor

    @classmethod
    def init(cls, num_clients: int, num_parts: int) -> "PartChanges":
        """Before the first round."""
        host = torch.device("cpu")
        last = torch.full((num_clients, 1), -1, dtype=torch.int64, device=host)
        return cls(last, torch.full((num_parts,), -1, dtype=torch.int64, device=host))

    def after(self, index: int, cohort: Cohort, parts: Collection[int]) -> "PartChanges":
        """After round `index`, in which the cohort took part and these parts changed."""
        last, changed = self.last.clone(), self.changed.clone()
        last[list(cohort.clients)] = index
        changed[list(parts)] = index
        return PartChanges(last, changed)

    def missed(self, client: int) -> tuple[int, ...]:
        """The parts that a client has to be sent."""
        since = max(0, int(self.last[client, 0]))
        return tuple(part for part, index in enumerate(self.changed.tolist()) if index >= since)


@dataclass(frozen=True)
class MissedParts(Downlink[PartChanges, Tensor]):
    """The parts that each client of the cohort misses, as floats: one broadcast to those that miss the same.

    Attributes:
        parts: of the model, disjoint.
    """

    sends_model = True

    parts: tuple[ParameterSubset, ...]

    def model(self, theta: Tensor, memory: PartChanges, cohort: Cohort, ctx: Context) -> tuple[Tensor, PartChanges]:
        """The server's model theta [D], which all arrive at; of a client that is apart its own. And the memory."""
        own, held = ctx.link.client, ctx.link.memory
        if own is not None and "model" not in held:
            held["model"] = theta  # before the first round, the first model
        groups: dict[tuple[int, ...], list[int]] = {}
        for client in cohort.clients:
            groups.setdefault(memory.missed(client), []).append(client)
        arrived = theta if own is None or own not in cohort.clients else held["model"]
        for indices, clients in sorted(groups.items()):
            parts = [self.parts[index] for index in indices]
            sent = torch.cat([theta[:0], *(part.take(theta) for part in parts)])
            received = ctx.send_dense("model", sent, Listed(tuple(clients)))
            if own in clients:
                for part, values in zip(parts, received.split([part.size for part in parts]), strict=True):
                    arrived = part.put(arrived, values)
        if own in cohort.clients:
            held["model"] = arrived
        return arrived, memory
