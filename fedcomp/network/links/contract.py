"""What a network is: each client's link, and the rules by which messages share it.

Shape legend: N clients, C cells.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedcomp.core.validate import check_choice, check_count, check_interval, check_seed, is_number
from fedcomp.network.headers import Header

WAYS, TRAILING, WEIGHTS = ("unicast", "multicast"), ("background", "wait"), ("renormalise", "inverse", "lost")


@dataclass(frozen=True)
class Links:
    """The clients' links and their speed of computing.

    Attributes:
        down, up: [N] float64 rates r^d, r^u in bit/s; inf costs no time. rtt: [N] round trip tau in seconds.
        work: [N] kappa, seconds of a component gradient. start: [N] o, seconds before a round's first gradient.
        cell: [N] int64 whose uplink a client shares. capacity: [C] of each cell, in bit/s; [0]: nobody shares.
        notes: what the user is told about them, one line each.
    """

    down: np.ndarray
    up: np.ndarray
    rtt: np.ndarray
    work: np.ndarray
    start: np.ndarray
    cell: np.ndarray
    capacity: np.ndarray
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Network(ABC):
    """Rules that all kinds of networks have; `links` has the rates.

    Attributes:
        down: how a broadcast goes down: unicast, to each receiver at its own rate, or multicast, once, at the rate of
            the slowest receiver.
        trailing: what a round ends with: background, the last message up, while what is sent after it is waited for
            when a client next needs it; wait, until the cohort holds all.
        header: bytes of headers, {message, packet, payload}: see `Header`; None: the ledger's bits alone.
        start_s: seconds before a client's first gradient of a round.
        cells: number of cells; client i is in cell i mod `cells`.
        capacity_bps: uplink of each cell in bit/s, one number or one a cell; None: nobody shares an uplink.
        jitter: deviation of the logarithm of a factor on both rates of a client, drawn anew in every round; 0 to 5.
        deadline: seconds after which a round ends without those who are late; None: it waits for all.
        deadline_weights: weights of who is on time: renormalise, inverse or lost; see `deadline.py`.
        seed: of the links; no part of the run's seed, so that clients are the same for all methods and seeds.
    """

    down: str = "unicast"
    trailing: str = "background"
    header: Mapping[str, int] | None = None
    start_s: float = 0.0
    cells: int | None = None
    capacity_bps: float | Sequence[float] | None = None
    jitter: float = 0.0
    deadline: float | None = None
    deadline_weights: str = "renormalise"
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("network.down", self.down, WAYS)
        check_choice("network.trailing", self.trailing, TRAILING)
        check_choice("network.deadline_weights", self.deadline_weights, WEIGHTS)
        check_seconds("network.start_s", self.start_s)
        check_seed("network.seed", self.seed)
        check_interval("network.jitter", self.jitter, "[0, 5]", "the deviation of log rates; 1 is a factor of e")
        if self.deadline is not None and not (is_number(self.deadline) and self.deadline > 0):
            raise ValueError(f"network.deadline={self.deadline} must be above 0, in seconds; null: no deadline")
        if self.deadline is not None and self.shares:
            raise ValueError(
                f"network.deadline={self.deadline} is not for cells, where lateness depends on the others: "
                "leave network.cells, network.capacity_bps and the column cell out"
            )
        if self.header is not None:
            Header.of(self.header)
        check_count("network.cells", self.cells, or_null=True)

    @property
    def shares(self) -> bool:
        """Whether clients share an uplink."""
        return self.cells is not None or self.capacity_bps is not None

    @abstractmethod
    def links(self, num_clients: int) -> Links:
        """The links of N clients. Raises ValueError: there are none for so many."""

    def made(
        self,
        down: np.ndarray,
        up: np.ndarray,
        rtt: np.ndarray,
        work: np.ndarray,
        cell: np.ndarray | None = None,
        notes: tuple[str, ...] = (),
    ) -> Links:
        """Links of these rates, round trips and seconds a gradient, with start and cells as the options say."""
        num = len(down)
        if self.cells is not None and self.cells > num:
            raise ValueError(
                f"network.cells={self.cells} are more than the {num} clients: give at most one cell a client"
            )
        if cell is None:
            cell = np.arange(num, dtype=np.int64) % (self.cells or 1)
        return Links(down, up, rtt, work, np.full(num, float(self.start_s)), cell, self._capacities(cell), notes)

    def _capacities(self, cell: np.ndarray) -> np.ndarray:
        """[C] bit/s of each cell, [0] without cells; a cell without clients is legal."""
        if not self.shares and not cell.any():
            return np.zeros(0)
        num = max(self.cells or 1, int(cell.max(initial=0)) + 1)
        if self.capacity_bps is None:
            raise ValueError(
                f"network.capacity_bps is missing: give the uplink of cell 0{f' to {num - 1}' if num > 1 else ''} in "
                "bit/s, one number or one a cell"
            )
        given = self.capacity_bps if isinstance(self.capacity_bps, Sequence) else [self.capacity_bps] * num
        if len(given) < num:
            raise ValueError(f"network.capacity_bps={list(given)} has no capacity of cell {len(given)}: give {num}")
        if len(given) > num:
            raise ValueError(
                f"network.capacity_bps={list(given)} has {len(given)} capacities, but network.cells={num}: give one a "
                "cell"
            )
        for number, capacity in enumerate(given):
            check_rate(f"network.capacity_bps of cell {number}", capacity)
        return np.array(given, dtype=np.float64)


def check_rate(name: str, value: object) -> None:
    """Raise ValueError unless `value` is a rate."""
    if not is_number(value) or not value > 0:
        raise ValueError(f"{name}={value} must be above 0, in bit/s (inf: no time)")


def check_seconds(name: str, value: object) -> None:
    """Raise ValueError unless `value` is a time."""
    if not is_number(value) or not 0 <= value < math.inf:
        raise ValueError(f"{name}={value} must be a finite number of 0 or more, in seconds")
