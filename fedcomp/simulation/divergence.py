"""Detects client metrics that are not finite, without synchronising a GPU in every round."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Clients, Metrics, Rows
from fedcomp.client import LocalResult
from fedcomp.core.cohort import Cohort
from fedcomp.core.parameter_layout import ParameterTensor
from fedcomp.simulation.async_metrics import to_host

REMEDY = "lower client.lr or server.lr, or set client.clip_norm"


class Diverged(ValueError):
    """A client's loss, or another value of it that must be finite, became infinite or NaN."""


@dataclass(frozen=True)
class ClientMetric:
    """A metric with one value a client.

    Attributes:
        round: 1 is the first. clients: the cohort's, of all repetitions one after another.
        sizes: clients of each repetition in which anybody took part; () of a single run.
        name: of the metric. values: [M], one a client.
    """

    round: int
    clients: tuple[int, ...]
    sizes: tuple[int, ...]
    name: str
    values: Tensor

    def error_message(self) -> str | None:
        """Names the round, the first repetition and the clients whose value is not finite; None: all are finite."""
        bad = (~torch.isfinite(self.values)).nonzero().flatten().tolist()
        if not bad:
            return None
        where, end = f"round {self.round}", len(self.clients)
        if self.sizes:
            ends = list(itertools.accumulate(self.sizes))
            number = bisect.bisect_right(ends, bad[0])
            end = ends[number]
            where += f", repetition {number} of {len(ends)} with clients"
        others = sum(place < end for place in bad) - 1
        what = "loss" if self.name == "train/loss" else self.name
        more = f" and {others} more" if others else ""
        return f"{where}: the {what} of client {self.clients[bad[0]]}{more} is {float(self.values[bad[0]])}; {REMEDY}"


@dataclass(frozen=True)
class PendingMetrics:
    """Metrics that were added and not checked yet."""

    noted: tuple[ClientMetric, ...]

    def sums(self) -> dict[str, Tensor]:
        """The sum of each metric, to be read for `check`: it is finite only if all its values are."""
        return {str(place): one.values.sum() for place, one in enumerate(self.noted)}

    def check(self, sums: Mapping[str, float]) -> None:
        """Raises Diverged: a value is not finite; names round, repetition and client. `sums`: as read."""
        for place, one in enumerate(self.noted):
            if math.isfinite(sums[str(place)]):
                continue
            if (error_message := one.error_message()) is not None:
                raise Diverged(error_message)


class TrackedClients:
    """Wraps the clients of one round and keeps their results, so that the error of a failed round can name a client.

    Args:
        clients: who does the work.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._results: list[tuple[Cohort, LocalResult]] = []

    @property
    def num_clients(self) -> int:
        """N."""
        return self._clients.num_clients

    @property
    def layers(self) -> tuple[int, ...]:
        """Sizes of the parameter tensors."""
        return self._clients.layers

    @property
    def tensors(self) -> tuple[ParameterTensor, ...]:
        """What the parameter tensors are."""
        return self._clients.tensors

    def run(self, work: Callable[..., Rows], cohort: Cohort, *rows: Tensor) -> Rows:
        """As `Clients.run`."""
        result = self._clients.run(work, cohort, *rows)
        parts = result if isinstance(result, tuple) else (result,)
        self._results += [(cohort, part) for part in parts if isinstance(part, LocalResult)]
        return result

    def parallel_map(self, function: Callable[[Any], Any], pieces: Sequence[Any]) -> Iterable[Any]:
        """As `Clients.parallel_map`."""
        return self._clients.parallel_map(function, pieces)

    def check(self, round_index: int) -> None:
        """Raises Diverged: a loss or an update of round `round_index` (1 is the first) is not finite. Reads them."""
        monitor = DivergenceMonitor(asynchronous=True)
        for cohort, result in self._results:
            norm = torch.linalg.vector_norm(result.theta, dim=1)
            monitor.add(round_index, cohort, {"train/loss": result.loss, "update/norm": norm})
        monitor.check()


class DivergenceMonitor:
    """Checks metrics with one value a client, such as training losses: on a CPU at once, on a GPU in `check`.

    Args:
        asynchronous: check on a CPU too only in `check`.
    """

    def __init__(self, asynchronous: bool = False) -> None:
        self._asynchronous = asynchronous
        self._noted: list[ClientMetric] = []

    def add(self, round_index: int, cohort: Cohort, metrics: Metrics, sizes: tuple[int, ...] = ()) -> None:
        """Add the metrics [M] of round `round_index` (1 is the first); `sizes` as in `RoundResult`.

        Raises Diverged (on a CPU at once).
        """
        for name, values in metrics.items():
            if values.dim():
                self._noted.append(ClientMetric(round_index, cohort.clients, sizes, name, values))
                if values.device.type == "cpu" and not self._asynchronous:
                    self.check()

    def take(self) -> PendingMetrics:
        """Returns the metrics added since the last call, and forgets them."""
        noted, self._noted = tuple(self._noted), []
        return PendingMetrics(noted)

    def check(self) -> None:
        """Check all metrics added so far. Raises Diverged."""
        seen = self.take()
        (sums,) = to_host(seen.sums())
        seen.check(sums)
