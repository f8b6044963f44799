"""Notices a value of a client that is no longer finite, without making a GPU wait for it every round."""

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
from fedcomp.simulation.async_metrics import numbers

REMEDY = "lower client.lr or server.lr, or set client.clip_norm"


class Diverged(ValueError):
    """A client's loss, or another value of it that must be finite, became infinite or NaN."""


@dataclass(frozen=True)
class Noted:
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

    def complaint(self) -> str | None:
        """What is not finite: the round, the first such repetition, its clients; None: everything is."""
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
class Seen:
    """Metrics that were noted and not looked at yet."""

    noted: tuple[Noted, ...]

    def sums(self) -> dict[str, Tensor]:
        """What is to be read for `check`: the sum of each, which is finite only if its values are."""
        return {str(place): one.values.sum() for place, one in enumerate(self.noted)}

    def check(self, sums: Mapping[str, float]) -> None:
        """Raises Diverged: a value is not finite; names round, repetition and client. `sums`: as read."""
        for place, one in enumerate(self.noted):
            if math.isfinite(sums[str(place)]):
                continue
            if (complaint := one.complaint()) is not None:
                raise Diverged(complaint)


class Trained:
    """The clients of one round, remembering what local training left: a round that fails says whose it was.

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

    def spread(self, function: Callable[[Any], Any], pieces: Sequence[Any]) -> Iterable[Any]:
        """As `Clients.spread`."""
        return self._clients.spread(function, pieces)

    def check(self, round_index: int) -> None:
        """Raises Diverged: a loss or an update of round `round_index` (1 is the first) is not finite. Reads them."""
        watch = Watch(late=True)
        for cohort, result in self._results:
            norm = torch.linalg.vector_norm(result.theta, dim=1)
            watch.see(round_index, cohort, {"train/loss": result.loss, "update/norm": norm})
        watch.check()


class Watch:
    """Looks at every metric with one value a client, such as training losses: on a CPU at once, on a GPU when asked.

    Args:
        late: only when asked on a CPU too.
    """

    def __init__(self, late: bool = False) -> None:
        self._late = late
        self._noted: list[Noted] = []

    def see(self, round_index: int, cohort: Cohort, metrics: Metrics, sizes: tuple[int, ...] = ()) -> None:
        """Note the metrics [M] of round `round_index` (1 is the first); `sizes` as in `Outcome`.

        Raises Diverged (on a CPU at once).
        """
        for name, values in metrics.items():
            if values.dim():
                self._noted.append(Noted(round_index, cohort.clients, sizes, name, values))
                if values.device.type == "cpu" and not self._late:
                    self.check()

    def take(self) -> Seen:
        """What was noted since it was last asked for."""
        noted, self._noted = tuple(self._noted), []
        return Seen(noted)

    def check(self) -> None:
        """Look at what was noted, now. Raises Diverged."""
        seen = self.take()
        (sums,) = numbers(seen.sums())
        seen.check(sums)
