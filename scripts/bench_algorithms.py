#!/usr/bin/env python
"""`make bench`: the time of a round relative to FedAvg with the same solver and compressors.

The job is J2 of `bench.py` (LeNet-5, 10 clients, batch 64, 10 steps); both sides run in one process, in turn. The ratio
is the median over turns. Goals: at most 1.10 for the bidirectional baselines, at most 1.25 for algorithms that mask or
prune while they train, including minimal random coding of the masks. Work that is done every few rounds
(synchronisations, diagnostics) is averaged over the rounds.
"""

import argparse
import inspect
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedcomp.config.compose import compose
from fedcomp.config.instantiate import build, build_compressor
from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.model.build import build as build_model
from fedcomp.model.chunking import chunk_size
from fedcomp.model.networks.cnn import lenet5
from fedcomp.participation.full import Full
from fedcomp.random.keys import Key
from fedcomp.runtime.cores import num_cores
from fedcomp.runtime.process_settings import keep_freed_memory
from fedcomp.runtime.workers import Workers
from fedcomp.simulation.chunks.client_data import ClientShards
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger, Link
from scripts.arguments import one_of, positive

CLIENTS, BATCH, STEPS = 10, 64, 10
GOALS = dict.fromkeys(("doublesqueeze", "memsgd", "neolithic", "cser", "liec", "m3"), 1.10)
GOALS |= dict.fromkeys(("fedmrn", "fedpm", "fedsparsify", "bicompfl_gr"), 1.25)
CLIENT = [f"client.batch_size={BATCH}", f"client.steps={STEPS}", f"num_clients={CLIENTS}"]


def rounds(algorithm: str, like: str) -> Callable[[], float]:
    """A function that runs one round of `algorithm` with the compressors of `like`, and returns its seconds."""
    chosen, own = (compose([f"algorithm={name}", *CLIENT]) for name in (like, algorithm))
    partial = build(own.algorithm)
    offered = {
        "client": build(chosen.client),
        "server": build(chosen.server),
        "uplink": build_compressor(chosen.compressor),
        "downlink": build_compressor(chosen.downlink, "downlink"),
    }
    wanted = set(inspect.signature(partial.func).parameters) - set(partial.keywords)
    method = partial(**{name: part for name, part in offered.items() if name in wanted})
    generator, num, cpu = torch.Generator().manual_seed(0), CLIENTS * BATCH * STEPS, torch.device("cpu")
    samples = Samples(
        torch.randn(num, 28, 28, 1, generator=generator), torch.randint(0, 10, (num,), generator=generator)
    )
    dataset, key = Dataset("bench", samples, samples, "classification", 10), Key(("bench",))
    model = build_model(lenet5, key, (1, 28, 28), 10, "classification")
    shards = ClientShards.of(list(torch.arange(num).split(BATCH * STEPS)), cpu)
    at_once = chunk_size(model, cpu, (1, 28, 28), BATCH)
    simulation = Simulation(method, dataset, shards, model, Full(), key, 100, at_once, Link, cpu, Workers(num_cores()))
    state, ledger, index = simulation.init(), Ledger(), 0

    def run() -> float:
        nonlocal state, index
        began = time.perf_counter()
        state, _ = simulation.round(index, state, ledger)
        index += 1
        return time.perf_counter() - began

    return run


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "methods", nargs="*", type=one_of(GOALS), default=tuple(GOALS), help=f"of {', '.join(GOALS)}; all by default"
    )
    parser.add_argument("--repeats", type=positive, default=9, help="rounds of each side")
    options = parser.parse_intermixed_args()
    keep_freed_memory()
    torch.set_num_threads(1)  # as `train` does: threads share chunks instead
    print(f"LeNet-5, {CLIENTS} clients, batch {BATCH}, {STEPS} steps; medians of {options.repeats} rounds")
    print(f"{'algorithm':14s} {'round ms':>9s} {'fedavg ms':>9s} {'ratio':>6s} {'goal':>6s}")
    for method in options.methods:
        ours, theirs = rounds(method, method), rounds("fedavg", method)
        pairs = [(ours(), theirs()) for _ in range(options.repeats + 1)][1:]  # the first turn warms up
        ratio = statistics.median(one / other for one, other in pairs)
        mine, other = (1e3 * statistics.median(side) for side in zip(*pairs))
        print(f"{method:14s} {mine:9.1f} {other:9.1f} {ratio:6.2f} {GOALS[method]:6.2f}", flush=True)


if __name__ == "__main__":
    main()
