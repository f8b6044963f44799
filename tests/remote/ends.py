"""A server and its clients as threads of one process, over sockets of this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fedcomp.check.noninterference import BROADCAST, RELAY, UP, RecordedRound
from fedcomp.remote.connections import Address, ClientEnd, ServerEnd, Traffic
from fedcomp.remote.processes import follow
from fedcomp.remote.simulation import RemoteSimulation, ServerSimulation
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger

KEY, RUN, HERE = b"a key", "a run", Address("127.0.0.1", 0)


@dataclass
class Served:
    """What the server has at the end: its state, its ledger, the tested models and metrics of each round."""

    state: Any = None
    ledger: Ledger = field(default_factory=Ledger)
    models: list[dict[str, Any]] = field(default_factory=list)
    metrics: list[dict[str, torch.Tensor]] = field(default_factory=list)
    traffic: Traffic = field(default_factory=Traffic)


def over_tcp(make: Callable[[], Simulation], folder: Path) -> Served:
    """The whole run, each end with a simulation of its own. Raises what the server raises."""
    end = ServerEnd(HERE, KEY, patience=8)
    first = make()
    num = len(first.shards.sizes)
    errors: list[BaseException] = []

    def client(number: int) -> None:
        own = ClientEnd(number, end.address, KEY, RUN, patience=8)
        try:
            follow(RemoteSimulation.of(make(), own), own, folder / f"{number}.pt", "hash")
            own.close()
        except BaseException as error:
            errors.append(error)
            own.close(why=str(error))

    threads = [threading.Thread(target=client, args=(number,), daemon=True) for number in range(num)]
    for thread in threads:
        thread.start()
    served = Served()
    try:
        end.gather(num, RUN, lambda line: None)
        sim = ServerSimulation.of(first, end)
        served.state = sim.init()
        for index in range(sim.rounds):
            served.state, result = sim.round(index, served.state, served.ledger)
            served.metrics.append(dict(result.metrics))
            served.models.append(sim.algorithm.evaluation_models(served.state, sim.key.fold_in("deployed", index)))
        end.close(end=True)
    except BaseException as error:
        end.close(stop=str(error))
        raise errors[0] if errors else error from error
    finally:
        for thread in threads:
            thread.join(8)
    served.traffic = end.traffic
    return served


def bytes_of(rounds: list[RecordedRound]) -> tuple[int, int]:
    """(up, down): bytes of the messages that a simulation recorded, a message for each receiver."""
    up = down = 0
    for one in rounds:
        for frame in one.frames:
            size, num = sum(map(len, frame.messages)), len(frame.messages)
            if frame.kind == UP:
                up += size
            elif frame.kind == RELAY:
                down += size * (num - 1)
            else:
                down += size * (len(frame.clients) if frame.kind == BROADCAST else 1)
    return up, down
