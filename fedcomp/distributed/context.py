"""The processes of a run: this one alone, or several that `torchrun` started.

A run synchronises its processes by these few calls. In a single process they cost nothing and do not touch
torch.distributed; `fedcomp/distributed/torch_processes.py` overrides all of them for several processes.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedcomp.display.console import say

if TYPE_CHECKING:  # torch takes seconds to import
    import torch

    from fedcomp.records.checkpoint import Checkpoint
    from fedcomp.simulation.simulation import Simulation


PATIENCE_SECONDS = 20.0
"""How long a process that ends waits for process 0 to print or to write its files: torchrun then ends that one too."""
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class TorchrunEnv:
    """Which of several processes this is, as torchrun says by environment variables.

    Attributes:
        rank, size: which of how many. local_rank, local_size: the same among those on this machine.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int


def torchrun_env() -> TorchrunEnv | None:
    """Which process this is of those that torchrun started; None: it is alone."""
    if any(name not in os.environ for name in NAMES) or os.environ["WORLD_SIZE"] == "1":
        return None
    return TorchrunEnv(*(int(os.environ[name]) for name in NAMES[:4]))


class ProcessContext:
    """The processes of a run; this class: one process alone. Collective: all make each call, in the same order.

    Attributes:
        over_tcp: whether this is the server of clients in other processes, as `wire=tcp` needs.
    """

    over_tcp = False

    @property
    def size(self) -> int:
        """How many processes there are."""
        return 1

    @property
    def is_main_process(self) -> bool:
        """Whether this process writes the files: folder, record, checkpoint, pictures, trackers, progress."""
        return True

    def say(self, text: str) -> None:
        """Print why the run ends, in one line. Of several processes only the first that ends prints."""
        say(text)

    def device(self, device: torch.device) -> torch.device:
        """The device of this process, of the kind that was picked. Raises ValueError: there is none for it."""
        return device

    def broadcast_object(self, value: Any) -> Any:
        """The main process's `value`, a small Python object; the values of the others are ignored."""
        return value

    def main_process_first(self) -> contextlib.AbstractContextManager[None]:
        """Context manager: the first process of each machine runs the block before the others, such as a download."""
        return contextlib.nullcontext()

    def distribute(self, simulation: Simulation, chunk_size: int | None, threads: int | None) -> Simulation:
        """The simulation with its work split over the processes. `chunk_size`, `threads`: as the user gave them."""
        return simulation

    def describe_split(self, simulation: Simulation) -> str | None:
        """How the work is split, in one line for the user; None: it is not."""
        return None

    def broadcast_checkpoint(self, start: Checkpoint) -> Checkpoint:
        """The main process's checkpoint; the other processes pass an initial state of the same shapes."""
        return start

    def all_reduce_flags(self, stop: int | None, due: bool) -> tuple[int | None, bool]:
        """After a round: the signal that any process received, and whether the main process's checkpoint is due."""
        return stop, due

    def check_in_sync(self, state: Any) -> None:
        """Raises ValueError: the processes hold different states."""


def say_once(text: str) -> None:
    """Print one line before the process group exists, where all processes end with the same error.

    The others than rank 0 wait: the first process that ends makes torchrun kill the rest, rank 0 before it has printed.
    """
    place = torchrun_env()
    if place is not None and place.rank > 0:
        time.sleep(PATIENCE_SECONDS)
    say(text)


def check_enough_work(num_clients: int, repeats: int, size: int) -> None:
    """Raise ValueError if some of the processes would never have anything to do."""
    most = max(num_clients, repeats)
    if size > most:
        work = f"{num_clients} clients" + (f" in each of {repeats} repetitions" if repeats > 1 else "")
        raise ValueError(
            f"{size} processes for {work}: start {most} at most (torchrun --nproc_per_node, launcher.processes_per_run)"
        )
