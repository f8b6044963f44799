"""Who makes a run: this process alone, or together with others that `torchrun` started.

A run says through these few calls what all of its processes must agree on. Alone, they cost nothing, and nothing of
torch.distributed is touched; `fedcomp/distributed/torch_processes.py` has the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from fedcomp.display.console import say
from fedcomp.distributed.torchrun_env import launched

if TYPE_CHECKING:  # torch takes seconds to import
    import torch

    from fedcomp.records.checkpoint import Checkpoint
    from fedcomp.simulation.simulation import Simulation


class Peers(Protocol):
    """The processes that make a run. Each call is made by all of them, in the same order."""

    @property
    def leads(self) -> bool:
        """Whether this is the one that writes: folder, record, checkpoint, pictures, trackers, progress."""
        ...

    def say(self, text: str) -> None:
        """One line for the user why the run ends; of several processes the first that ends says its own."""
        ...

    def device(self, device: torch.device) -> torch.device:
        """This process's own device of the kind that was picked. Raises ValueError: there is none for it."""
        ...

    def told(self, value: Any) -> Any:
        """The leader's `value`, a small Python value; the others' is ignored."""
        ...

    def by_turns(self) -> contextlib.AbstractContextManager[None]:
        """A block that one process of each machine goes through first: it may download what the others then find."""
        ...

    def share(self, simulation: Simulation, chunk_size: int | None, threads: int | None) -> Simulation:
        """The simulation with its work split. `chunk_size`, `threads`: what the user gave."""
        ...

    def words(self, simulation: Simulation) -> str | None:
        """One line for the user on how the work is split."""
        ...

    def start(self, start: Checkpoint) -> Checkpoint:
        """Where the leader starts; the others give a first state to fill."""
        ...

    def agree(self, stop: int | None, due: bool) -> tuple[int | None, bool]:
        """After a round: the signal that any process heard, and whether the leader's checkpoint is due."""
        ...

    def compare(self, state: Any) -> None:
        """Raises ValueError: the processes hold different states."""
        ...


class Alone:
    """Implements `Peers` for a run of one process."""

    leads = True

    def say(self, text: str) -> None:
        """At once."""
        say(text)

    def device(self, device: torch.device) -> torch.device:
        """The device as it is."""
        return device

    def told(self, value: Any) -> Any:
        """The value as it is."""
        return value

    def by_turns(self) -> contextlib.AbstractContextManager[None]:
        """At once."""
        return contextlib.nullcontext()

    def share(self, simulation: Simulation, chunk_size: int | None, threads: int | None) -> Simulation:
        """The simulation as it is."""
        return simulation

    def words(self, simulation: Simulation) -> str | None:
        """Nothing to say."""
        return None

    def start(self, start: Checkpoint) -> Checkpoint:
        """The start as it is."""
        return start

    def agree(self, stop: int | None, due: bool) -> tuple[int | None, bool]:
        """Both as they are."""
        return stop, due

    def compare(self, state: Any) -> None:
        """Nothing to compare with."""


@contextlib.contextmanager
def together() -> Iterator[Peers]:
    """The processes of this run, joined until the end of the block."""
    place = launched()
    if place is None:
        yield Alone()
        return
    from fedcomp.distributed.torch_processes import joined

    with joined(place) as ranks:
        yield ranks


def say_once(text: str) -> None:
    """One line of what every process finds by itself, before they are joined: from one of them."""
    place = launched()
    if place is None or place.rank == 0:
        say(text)
