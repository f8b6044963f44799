"""What a small simulation sent, as its recorder has it."""

from pathlib import Path

import numpy as np

from fedcomp.network.exchanges import exchange_numbers, exchanges
from fedcomp.network.traffic.file import Traffic, save
from fedcomp.network.traffic.recorder import TrafficRecorder
from fedcomp.network.traffic.rounds import DOWN_PHASE, PHASES, UP_PHASE, WORK_PHASE, Round
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger

MARKS = {DOWN_PHASE: "↓", WORK_PHASE: "w", UP_PHASE: "↑"}


def traffic_of(simulation: Simulation) -> tuple[Traffic, Ledger]:
    """What the rounds sent, and the ledger's counts."""
    ledger, recorder = Ledger(), TrafficRecorder(len(simulation.shards.sizes))
    recorder.attach(ledger)
    state = simulation.init()
    for index in range(simulation.rounds):
        state, _ = simulation.round(index, state, ledger)
    return recorder.take_segment(), ledger


def shape(one: Round) -> str:
    """A round's exchanges with their phases, as in "w ↑ | ↓"."""
    found: dict[int, list[str]] = {}
    for number, leg in zip(exchange_numbers(one.template), one.template, strict=True):
        phases = found.setdefault(number, [])
        if phases[-1:] != [MARKS[PHASES[leg.kind]]]:
            phases.append(MARKS[PHASES[leg.kind]])
    return " | ".join(" ".join(phases) for phases in found.values())


def sums(traffic: Traffic) -> dict[str, int]:
    """Bits and gradients, summed over clients, rounds and repetitions."""
    total = dict.fromkeys(("uplink", "downlink", "broadcast", "gradients"), 0)
    for rounds in traffic.rounds:
        for one in rounds:
            for exchange in exchanges(one, traffic.num_clients, multicast=False):
                total["uplink"] += int(exchange.up.sum())
                total["downlink"] += int(exchange.down.sum())
                total["gradients"] += int(exchange.work.sum())
            for exchange in exchanges(one, traffic.num_clients, multicast=True):
                total["broadcast"] += int(exchange.down.sum()) + sum(bits for bits, _ in exchange.once)
    return total


def content(traffic: Traffic, folder: Path, name: str = "one.npz") -> bytes:
    """The file's bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    save(folder / name, traffic)
    return (folder / name).read_bytes()


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}
