"""What a network is: each client's link, and the rules by which messages share it.

Shape legend: N clients, C cells.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from fedcomp.core.folders import name_of
from fedcomp.core.ranges import CheckedOptions, Whole, Within
from fedcomp.core.validate import check_interval
from fedcomp.network.headers import Header

Rate = Annotated[float, Within("(0, inf]", "in bit/s; inf: no time")]
Seconds = Annotated[float, Within("[0, inf)", "in seconds")]


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
class Network(CheckedOptions, ABC):
    """Rules that all kinds of networks have; `links` has the rates.

    Attributes:
        trailing: what a round ends with: background, the last message up, while what is sent after it is waited for
            when a client next needs it; wait, until the cohort holds all.
        header: see `Header`; None: the ledger's bits alone. deadline_weights: see `deadline.py`.
        cells: client i is in cell i mod `cells`.
        seed: of the links; no part of the run's seed, so that clients are the same for all methods and seeds.
    """

    prefix: ClassVar[str] = "network."
    down: Literal["unicast", "multicast"] = "unicast"
    trailing: Literal["background", "wait"] = "background"
    header: Mapping[str, int] | None = None
    start_s: Seconds = 0.0
    cells: Annotated[int | None, Whole()] = None
    capacity_bps: float | Sequence[float] | None = None
    jitter: Annotated[float, Within("[0, 5]", "the deviation of log rates; 1 is a factor of e")] = 0.0
    deadline: Annotated[float | None, Within("(0, inf]", "in seconds; null: none")] = None
    deadline_weights: Literal["renormalise", "inverse", "lost"] = "renormalise"
    seed: Annotated[int, Whole(0)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.deadline is not None and self.shares:
            raise ValueError(
                f"network.deadline={self.deadline} is not for cells, where lateness depends on the others: "
                "leave network.cells, network.capacity_bps and the column cell out"
            )
        if self.header is not None:
            Header.of(self.header)

    @property
    def shares(self) -> bool:
        """Whether clients share an uplink."""
        return self.cells is not None or self.capacity_bps is not None

    @abstractmethod
    def links(self, num_clients: int) -> Links:
        """The links of N clients. Raises ValueError: there are none for so many."""

    def checked_links(self, num_clients: int) -> Links:
        """`links`, also those of the user's own network.

        Raises ValueError: as `links`, a time would be none, or links are other ones when they are asked for again.
        """
        links = self.links(num_clients)
        if not isinstance(links, Links):
            raise ValueError(f"{self.name}: links returned a {type(links).__name__}, but must return Links (self.made)")
        for name in ("down", "up", "rtt", "work", "start", "cell"):
            values = getattr(links, name)
            if not isinstance(values, np.ndarray) or values.shape != (num_clients,):
                given = values.shape if isinstance(values, np.ndarray) else f"a {type(values).__name__}"
                raise ValueError(f"{self.name}: links.{name} is {given}, but must be a NumPy array [{num_clients}]")
            rate = name in ("down", "up")
            wrong = np.flatnonzero(~(values > 0 if rate else (values >= 0) & (values < np.inf)))
            if len(wrong):
                allowed = "above 0, in bit/s" if rate else "0 or more, and finite"
                raise ValueError(
                    f"{self.name}: links.{name} is {values[wrong[0]]} for client {wrong[0]}, but must be {allowed}"
                )
        again = links if type(self).__module__.startswith("fedcomp.") else self.links(num_clients)
        pairs = [(getattr(links, name), getattr(again, name)) for name in ("down", "up", "rtt", "work")]
        if not all(np.array_equal(one, other) for one, other in pairs):
            raise ValueError(
                f"{self.name}: links are other ones when they are asked for again, also by a resumed run: draw them by "
                'a key, as in Key(("mine", self.seed)).normal(torch.arange(num_clients), 1)'
            )
        return links

    @property
    def name(self) -> str:
        """What errors call it."""
        return f"network={name_of(self)}"

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
        if isinstance(self.capacity_bps, str):  # which is a sequence too
            check_interval("network.capacity_bps", self.capacity_bps, "(0, inf]", "in bit/s")
        given = self.capacity_bps if isinstance(self.capacity_bps, Sequence) else [self.capacity_bps] * num
        if len(given) < num:
            raise ValueError(f"network.capacity_bps={list(given)} has no capacity of cell {len(given)}: give {num}")
        if len(given) > num:
            raise ValueError(
                f"network.capacity_bps={list(given)} has {len(given)} capacities, but network.cells={num}: give one a "
                "cell"
            )
        for number, capacity in enumerate(given):
            check_interval(f"network.capacity_bps of cell {number}", capacity, "(0, inf]", "in bit/s")
        return np.array(given, dtype=np.float64)
