#!/usr/bin/env python
"""What a network costs: processor time of rounds with and without it, in turn, in one process and one thread.

python scripts/bench_network.py                                  FedAvg on digits, 20 clients
python scripts/bench_network.py participation=uniform participation.num_participants=10
python scripts/bench_network.py compressor=topk compressor.positions=rice compressor.feedback=error

A pair is a round of each; their order alternates. The rounds of the network are timed as with `eval_every` of 1 and 10:
what was sent is read and the clock moved after every round, or after every tenth.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch

from fedcomp.config.compose import compose
from fedcomp.config.factory import build_recorder, build_simulation
from fedcomp.wire import Ledger

PAIRS, WARM = 1500, 100
COMMON = ("rounds=100000", "threads=1", "network=lte", "network.seconds_per_gradient=1e-3")


def main(words: list[str]) -> None:
    """Print a line for each `eval_every`."""
    for every in (1, 10):
        without, timed = _rounds(words, 0), _rounds(words, every)
        pairs = []
        for number in range(WARM + PAIRS):
            order = (without, timed) if number % 2 else (timed, without)
            found = {one: one() for one in order}
            pairs.append((found[without], found[timed]))
        pairs = pairs[WARM:]
        plain = statistics.median(one for one, _ in pairs)
        # A round in `every` also reads: means over so many pairs, then their median.
        more = [
            statistics.mean(other - one for one, other in pairs[first : first + every])
            for first in range(0, PAIRS, every)
        ]
        added = statistics.median(more)
        print(
            f"eval_every={every}: a round takes {1e6 * plain:.0f} us, with a network {1e6 * added:.0f} us more "
            f"({100 * added / plain:.1f} %)"
        )


def _rounds(words: list[str], every: int) -> Callable[[], float]:
    """A function that makes the next round and returns its seconds.

    Args:
        every: rounds between evaluations; 0: no network.
    """
    config = compose([*COMMON, *words])
    simulation, _ = build_simulation(config, torch.device("cpu"))
    ledger, recorder = Ledger(), build_recorder(simulation, config)
    assert recorder is not None
    if every:
        recorder.attach(ledger)
    state, index = simulation.init(), 0

    def step() -> float:
        nonlocal state, index
        began = time.process_time()
        state, _ = simulation.round(index, state, ledger)
        index += 1
        if every and index % every == 0:
            recorder.submit()()
        return time.process_time() - began

    return step


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1:])
