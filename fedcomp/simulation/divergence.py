"""Detects training that diverges: metrics that are not finite, and error memories that grow far beyond the updates.

None of it synchronises a GPU in every round.
"""

import bisect
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Metrics
from fedcomp.client import LocalResult
from fedcomp.core.cohort import Cohort
from fedcomp.display.metric import metric
from fedcomp.records.metrics_file import Line
from fedcomp.simulation.async_metrics import to_host

REMEDY = "lower client.lr or server.lr, or set client.clip_norm (algorithm.lr where the method has its own)"
FACTOR = 10.0
"""A memory is reported once its norm is this many times the largest norm of an update so far."""
MEMORIES = {"memory/norm": ("update/norm", "clients"), "memory/norm_down": ("update/norm_down", "server")}
"""{metric of a memory's norm: (metric of the norm of its updates, who holds it)}; see algorithm/updates/metrics.py."""


MESSAGE = re.compile(r"round \d+.*: the .+ is (nan|inf|-inf); ")
"""How the message of `Diverged` begins."""


class Diverged(ValueError):
    """The loss of a client, or another of its values that must be finite, became infinite or NaN."""


def has_diverged(error: str) -> bool:
    """Whether the error of a failed run, a line of its `status.json`, is that of `Diverged`."""
    return MESSAGE.match(error) is not None


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


def check_results(round_index: int, results: Sequence[tuple[Cohort, LocalResult]]) -> None:
    """Raise Diverged if a client's loss or parameters after training in round `round_index` (1: first) are not finite.

    Waits for the device, so it is only called after an error.
    """
    monitor = DivergenceMonitor(asynchronous=True)
    for cohort, result in results:
        norm = torch.linalg.vector_norm(result.value, dim=1)
        monitor.add(round_index, cohort, {"train/loss": result.loss, "update/norm": norm})
    monitor.check()


def check_finite(done: int, line: Line) -> None:
    """Raise Diverged: a test metric is not finite. Before the first round nothing is checked."""
    for name, value in line.items() if done else ():
        if name.startswith("test/") and not math.isfinite(value):
            remedy = REMEDY if name in ("test/loss", "test/excess") else "compress less, or take another estimator"
            raise Diverged(f"round {done}: the {metric(name).words} of the server's model is {value}; {remedy}")


class MemoryGrowthMonitor:
    """Checks every evaluation's line; warns at most once for each memory.

    A memory is compared with the longest update so far. Updates become shorter as a model converges, so a memory whose
    norm stays constant causes no warning.
    """

    def __init__(self, earlier: Iterable[Mapping[str, float]] = ()) -> None:
        """Args: earlier: the record's lines before a resume; their warnings are not repeated."""
        self._said: set[str] = set()
        self._longest: dict[str, float] = {}
        for line in earlier:
            self.check(0, line)

    def check(self, round_index: int, line: Mapping[str, float]) -> list[str]:
        """New warnings after `round_index` rounds."""
        found = []
        for name, (reference, owner) in MEMORIES.items():
            memory, update = line.get(name), line.get(reference)
            if memory is None or update is None:
                continue
            longest = self._longest[name] = max(update, self._longest.get(name, 0.0))
            if name in self._said or not memory > FACTOR * longest:
                continue
            self._said.add(name)
            ratio = memory / max(longest, 1e-30)
            found.append(
                f"round {round_index}: the memory of errors of the {owner} is {ratio:.3g} times as long as the longest "
                f"update ({name} {memory:.3g}, {reference} at most {longest:.3g}). It stops growing if the codec "
                "always shrinks what is left (topk, sign, randk with scale=none); where messages have a fixed size "
                "(scale=fixed, masked_noise) and updates are larger, it never stops: raise that size, lower client.lr, "
                "or take EF21, which stays bounded (algorithm=bicompfl_cfl algorithm.ef21=true)"
            )
        return found
