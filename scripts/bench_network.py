#!/usr/bin/env python
"""What a network costs: processor time of rounds with and without it, in turn, in one process and one thread.

python scripts/bench_network.py                                  FedAvg on digits, 20 clients
python scripts/bench_network.py participation=uniform participation.num_participants=10
python scripts/bench_network.py compressor=topk compressor.positions=rice compressor.feedback=error

A pair is a round of each; their order alternates. They are timed as with `eval_every` of 1 and 10: after every round,
or after every tenth, both are evaluated, and with the network what was sent is read and the clock moved. The first line
is the ledger's record of clients and exchanges alone: nothing is evaluated or read, and no clock moves.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from fedcomp.config.compose import compose
from fedcomp.config.factory import build_recorder, build_simulation
from fedcomp.wire import Ledger

PAIRS, WARM = 1500, 100
COMMON = ("rounds=100000", "threads=1", "network=lte", "network.seconds_per_gradient=1e-3")


def main(words: list[str]) -> None:
    """Print a line for the record alone, and for each `eval_every`."""
    for every in (0, 1, 10):
        without, timed = _rounds(words, every, False), _rounds(words, every, True)
        pairs = []
        for number in range(WARM + PAIRS):
            order = (without, timed) if number % 2 else (timed, without)
            found = {one: one() for one in order}
            pairs.append((found[without], found[timed]))
        pairs = pairs[WARM:]
        # A round in `every` also evaluates and reads: means over so many pairs, then their median.
        size = max(every, 1)
        groups = [pairs[first : first + size] for first in range(0, PAIRS, size)]
        plain = statistics.median(statistics.mean(one for one, _ in group) for group in groups)
        added = statistics.median(statistics.mean(other - one for one, other in group) for group in groups)
        what = f"eval_every={every}" if every else "record alone"
        share = f"{100 * added / plain:.1f} %"
        print(f"{what}: a round takes {1e6 * plain:.0f} us, with a network {1e6 * added:.0f} us more ({share})")


def _rounds(words: list[str], every: int, timed: bool) -> Callable[[], float]:
    """A function that makes the next round and returns its seconds.

    Args:
        every: rounds between evaluations; 0: there are none, and nothing is read. timed: with the network.
    """
    config = compose([*COMMON, *words])
    simulation, _ = build_simulation(config, torch.device("cpu"))
    ledger, recorder = Ledger(), build_recorder(simulation, config)
    assert recorder is not None
    if timed:
        recorder.attach(ledger)
    state, index = simulation.init(), 0

    def step() -> float:
        nonlocal state, index
        began = time.process_time()
        state, _ = simulation.round(index, state, ledger)
        index += 1
        if every == 0:
            recorder.repetitions[0].log.rounds.clear()
        elif index % every == 0:
            finish = recorder.submit() if timed else dict
            simulation.test_metrics(index, state)
            finish()
        return time.process_time() - began

    return step


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="OPTION=VALUE", help="options of the run")
    given = parser.parse_args()
    torch.set_num_threads(1)
    main(given.words)
