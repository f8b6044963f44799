"""The cohort, clients and link that a method gets inside `torch.func.vmap` over repetitions.

Shape legend: R repetitions, M rows of each, n clients of all repetitions together.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedcomp.core.cohort import Cohort, Receivers
from fedcomp.core.parameter_layout import ParameterTensor
from fedcomp.core.pytree import flatten, map_tensors, unflatten
from fedcomp.simulation.chunks.executor import Executor
from fedcomp.simulation.monte_carlo.vmap_keys import NotVmappable, over_repetitions
from fedcomp.wire import Ledger, Link, Payload
from fedcomp.wire.legs import BROADCAST, RELAY, UP, XOR_RELAY


class Size(int):
    """The number of rows of a padded cohort, which stands for another number of clients in each repetition."""


class _Unknown(tuple[int, ...]):
    """The client numbers of a padded cohort: they differ between repetitions, so the host has no single number."""

    def __iter__(self) -> Iterator[int]:
        raise NotVmappable("the clients' numbers on the host")

    def __getitem__(self, place: Any) -> Any:
        raise NotVmappable("a client's number on the host")

    def __contains__(self, client: object) -> bool:
        raise NotVmappable("the clients' numbers on the host")


@dataclass(frozen=True)
class PaddedCohort(Cohort):
    """M rows, of which each repetition's first ones are its clients; the rest has weight 0.

    Attributes:
        even: whether all repetitions have M clients, so that every row is a client.
    """

    even: bool = True

    @classmethod
    def padded(cls, ids: Tensor, weight: Tensor, even: bool) -> "PaddedCohort":
        """Inside vmap: ids [M], weight [M]."""
        return cls(ids, weight, _Unknown(), even)

    def is_all_of(self, num_clients: int) -> bool:
        """Raises NotVmappable where some rows are padding: they would be taken for clients."""
        if not self.even:
            raise NotVmappable("one row a client, for cohorts that differ in size")
        return super().is_all_of(num_clients)

    @property
    def size(self) -> Size:
        """M."""
        return Size(self.ids.shape[0])


@dataclass(frozen=True)
class VmappedClients:
    """Implements `Clients` inside vmap: the clients of all repetitions are trained as one cohort.

    Attributes:
        executor: of the joined federation. cohort: its clients of this round.
        positions: [n] their rows among the R M rows. num_clients: of one repetition.
    """

    executor: Executor
    cohort: Cohort
    positions: Tensor
    num_clients: int

    @property
    def layers(self) -> tuple[int, ...]:
        return self.executor.layers

    @property
    def tensors(self) -> tuple[ParameterTensor, ...]:
        return self.executor.tensors

    def moved(self, change: Tensor) -> "VmappedClients":
        """Raises NotVmappable: every repetition has a base of its own."""
        raise NotVmappable("adapters over a moved base")

    def parallel_map(self, function: Callable[[Any], Any], pieces: Sequence[Any]) -> Iterable[Any]:
        """`map(function, pieces)`: vmap belongs to its own thread."""
        return map(function, pieces)

    def map_clients(self, work: Callable[..., Any], cohort: Cohort, *rows: Tensor) -> Any:
        """As `Clients.map_clients`; padding rows come back as zeros."""
        if not isinstance(cohort, PaddedCohort):
            raise NotVmappable("work for a part of the cohort")
        built: list[Any] = []

        def outside(_: Tensor, *rows_RM: Tensor) -> tuple[Tensor, ...]:
            num_rows = rows_RM[0].shape[:2] if rows_RM else _.shape
            result = self.executor.map_clients(
                work, self.cohort, *[one.flatten(0, 1)[self.positions] for one in rows_RM]
            )
            built.append(result)

            def with_padding(part: Tensor) -> Tensor:
                whole = part.new_zeros(num_rows.numel(), *part.shape[1:])
                return whole.index_copy_(0, self.positions, part).unflatten(0, num_rows)

            return tuple(flatten(map_tensors(with_padding, result)).values())

        outputs = over_repetitions(outside, cohort.ids, *rows)
        return unflatten(built[0], outputs)


class VmappedLink(Link):
    """Counts what R repetitions send while the method sends once.

    Args:
        ledger: of all repetitions. num_rows: M. num_clients: n, without padding. num_repetitions: R.
    """

    both_ends = False

    def __init__(self, ledger: Ledger, num_rows: int, num_clients: int, num_repetitions: int) -> None:
        super().__init__(ledger)
        self._num_rows, self._num_clients, self._num_repetitions = num_rows, num_clients, num_repetitions

    def _count(self, kind: int, payload: Payload, who: Receivers | None) -> None:
        if kind in (RELAY, XOR_RELAY):
            raise NotVmappable("messages that go to all other clients")
        bits, paper = _fixed(payload)
        if kind == BROADCAST:
            assert who is not None
            num = self._num_clients if isinstance(who.size, Size) else who.size * self._num_repetitions
            self.ledger.add_receivers(num)
            self.ledger.add("downlink", bits * num, paper * num)
            self.ledger.add("broadcast", bits * self._num_repetitions, paper * self._num_repetitions)
        else:
            if payload.num_rows != self._num_rows:
                raise NotVmappable("messages of a part of the cohort")
            bits, paper = bits // self._num_rows, paper // self._num_rows
            for link in ("uplink",) if kind == UP else ("downlink", "broadcast"):
                self.ledger.add(link, bits * self._num_clients, paper * self._num_clients)
        if self.ledger.legs is not None:  # the same for all repetitions
            self.ledger.legs.add(kind, bits, None if isinstance(who, Cohort) else who)

    def _carry(self, kind: int, payload: Payload, who: Receivers | None) -> Payload:
        return payload


def _fixed(payload: Payload) -> tuple[int, int]:
    """(bits, paper bits) of a payload. Raises NotVmappable: they depend on the data, or its error was measured."""
    if payload.measured:
        raise NotVmappable("the errors of messages")
    bits, paper = payload.total_bits, payload.total_paper_bits
    if isinstance(bits, Tensor) or isinstance(paper, Tensor):
        raise NotVmappable("bits that depend on data")
    return bits, paper
