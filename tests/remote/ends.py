"""A server and its clients as processes, over sockets of this machine."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import torch

from fedcomp.check.noninterference import RecordedRound
from fedcomp.core.accelerated import Verdicts, judged_by
from fedcomp.remote.client_end import ClientEnd, Hello
from fedcomp.remote.frames import Address, CarriedBytes
from fedcomp.remote.processes import follow
from fedcomp.remote.server_end import ServerEnd
from fedcomp.remote.simulation import RemoteSimulation, ServerSimulation
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger

KEY, RUN, HERE, PATIENCE = b"a key", "a run", Address("127.0.0.1", 0), 30.0


@dataclass
class Served:
    """What the server has at the end: its state, its ledger, the tested models and metrics of each round."""

    state: Any = None
    ledger: Ledger = field(default_factory=Ledger)
    models: list[dict[str, Any]] = field(default_factory=list)
    metrics: list[dict[str, torch.Tensor]] = field(default_factory=list)
    carried: CarriedBytes = field(default_factory=CarriedBytes)


def over_tcp(make: Callable[[], Simulation], clients: Pool, folder: Path) -> Served:
    """The whole run, each end with a simulation of its own.

    Args:
        make: makes it; a function of a module, with or without arguments. clients: a process for each.
    Raises:
        what went wrong first at a client; else what the server raises.
    """
    end = ServerEnd(HERE, KEY, patience=PATIENCE)
    first = make()
    num = len(first.shards.sizes)
    joined = clients.starmap_async(_join, [(make, number, end.address, folder) for number in range(num)], chunksize=1)
    served = Served(carried=end.carried)
    try:
        end.gather(num, RUN)
        sim = ServerSimulation.of(first, end)
        served.state = sim.init()
        for index in range(sim.rounds):
            served.state, result = sim.round(index, served.state, served.ledger)
            served.metrics.append(dict(result.metrics))
            tested = sim.with_clients_rows(index + 1, served.state)
            served.models.append(sim.algorithm.evaluation_models(tested, sim.key.fold_in("deployed", index)))
        served.state = sim.gather_state(served.state)
        end.close(end=True)
    except BaseException as error:
        end.close(stop=str(error))
        joined.get(20)
        raise
    joined.get(20)
    return served


def _join(make: Callable[[], Simulation], number: int, address: Address, folder: Path) -> None:
    """As `fedcomp-join` does."""
    with judged_by(Verdicts()):
        own = ClientEnd(address, KEY, Hello(number, RUN), PATIENCE)
        try:
            follow(RemoteSimulation.of(make(), own), own, folder / f"{number}.pt", "hash")
            own.close()
        except BaseException as error:
            own.close(why=str(error))
            raise


@contextmanager
def gathering(num: int, number: str = "") -> Iterator[tuple[ServerEnd, list[str]]]:
    """A server that waits for so many clients, and what it says; when the block ends, it must have them all.

    Args:
        number: of its run.
    """
    said: list[str] = []
    end = ServerEnd(HERE, KEY, say=said.append)
    waiting = threading.Thread(target=end.gather, args=(num, RUN, number), daemon=True)
    waiting.start()
    yield end, said
    waiting.join(PATIENCE)
    assert not waiting.is_alive()


def gathered(end: ServerEnd, *clients: int) -> list[ClientEnd]:
    """These clients' ends, once the server has them all."""
    waiting = threading.Thread(target=end.gather, args=(len(clients), RUN), daemon=True)
    waiting.start()
    found = [ClientEnd(end.address, KEY, Hello(client, RUN)) for client in clients]
    waiting.join(20)
    return found


def until(true: Callable[[], bool]) -> None:
    """Wait until this is so."""
    last = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < last
        time.sleep(0.001)


def until_somebody_came(end: ServerEnd) -> None:
    """Wait until somebody was greeted at the server's door, or refused there."""
    until(lambda: not end._door._came.empty())


def bytes_of(rounds: list[RecordedRound]) -> tuple[int, int]:
    """(up, down): bytes of the messages that a simulation recorded, a message for each receiver."""
    up = down = 0
    for one in rounds:
        for frame in one.frames:
            size, num = sum(map(len, frame.messages)), len(frame.messages)
            if frame.kind == "up":
                up += size
            elif frame.kind == "relay":
                down += size * (num - 1)
            else:
                down += size * (len(frame.clients) if frame.kind == "broadcast" else 1)
    return up, down
