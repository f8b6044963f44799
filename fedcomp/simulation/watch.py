"""Notices a value of a client that is no longer finite, without making a GPU wait for it every round."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Clients, Metrics, Rows
from fedcomp.client import LocalResult
from fedcomp.cohort import Cohort
from fedcomp.simulation.readings import numbers
from fedcomp.tensors import ParameterTensor

REMEDY = "lower client.lr or server.lr, or set client.clip_norm"


class Diverged(ValueError):
    """A client's loss, or another value of it that must be finite, became infinite or NaN."""


@dataclass(frozen=True)
class Seen:
    """Metrics that were noted and not looked at yet.

    Attributes:
        noted: of each its round (1 is the first), the cohort's clients, its name and its values [M].
    """

    noted: tuple[tuple[int, tuple[int, ...], str, Tensor], ...]

    def sums(self) -> dict[str, Tensor]:
        """What is to be read for `check`: the sum of each, which is finite only if its values are."""
        return {str(place): values.sum() for place, (*_, values) in enumerate(self.noted)}

    def check(self, sums: Mapping[str, float]) -> None:
        """Raises Diverged: a value is not finite; names the round and the client. `sums`: as read."""
        for place, (round_index, clients, name, values) in enumerate(self.noted):
            if math.isfinite(sums[str(place)]):
                continue
            bad = (~torch.isfinite(values)).nonzero().flatten().tolist()
            if not bad:
                continue
            what = "loss" if name == "train/loss" else name
            others = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
            where = f"round {round_index}: the {what} of client {clients[bad[0]]}{others}"
            raise Diverged(f"{where} is {float(values[bad[0]])}; {REMEDY}")


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
        self._noted: list[tuple[int, tuple[int, ...], str, Tensor]] = []

    def see(self, round_index: int, cohort: Cohort, metrics: Metrics) -> None:
        """Note the metrics [M] of round `round_index` (1 is the first). Raises Diverged (on a CPU at once)."""
        for name, values in metrics.items():
            if values.dim():
                self._noted.append((round_index, cohort.clients, name, values))
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
