#!/usr/bin/env python
"""`make bench`: the speedup of a study over the same repetitions one after another.

The regression of `experiment=fedavg_svrg/diabetes` (17 agents x 26 people, 10 features) in 20 repetitions, in one
process, in turn. "rounds": rounds with their evaluations, the minimum of several turns. "run": 100 rounds from the
config to the finished folder, without pictures, against 20 runs with repeats=1, measured once. Goal: at least 8 times
as fast.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from fedcomp.config.compose import compose
from fedcomp.config.factory import build_runner, build_simulation
from fedcomp.runtime.process_settings import keep_freed_memory
from fedcomp.simulation.monte_carlo.study import MonteCarloStudy
from fedcomp.training.train import train
from fedcomp.wire import Ledger

SVRG = ["algorithm=fedavg_svrg"]
FEDAVG = ["algorithm.weights=uniform", "participation=bernoulli"]
METHODS = {
    "FedAvg-SVRG, S=5, M=2": SVRG,
    "FedAvg-SVRG, S=10, M=5": [*SVRG, "client.snapshots=10", "client.inner_steps=5"],
    "FedAvg, 10 steps": [*FEDAVG, "client.lr=0.1", "client.batch_size=1", "client.steps=10"],
    "FedAvg, 50 steps": [*FEDAVG, "client.lr=0.1", "client.batch_size=1", "client.steps=50"],
    "sign up, S=5, M=2": [*SVRG, "compressor=sign"],
}
SETTING = [
    "dataset=diabetes",
    "dataset.scaling=min_max",
    "dataset.test_fraction=0",
    "partition.seed=0",
    "model=linear",
    "num_clients=17",
    "dtype=float64",
]
GOAL = 8


def measured(study: MonteCarloStudy, rounds: int) -> Callable[[], float]:
    """A function that runs the rounds with an evaluation after each, and returns the seconds per round."""
    state, ledger, index = study.init(), Ledger(), 0

    def run() -> float:
        nonlocal state, index
        began = time.perf_counter()
        for _ in range(rounds):
            state, outcome = study.round(index, state, ledger)
            index += 1
            study.evaluate(index, state, outcome)
        return (time.perf_counter() - began) / rounds

    return run


def whole_run(overrides: list[str], repeats: int) -> float:
    """The time of `repeats` runs divided by that of one run with `repeats` repetitions."""
    common = [*overrides, "rounds=100", "quiet=true", "pictures=false"]
    with tempfile.TemporaryDirectory() as root:
        study = compose([*common, f"repeats={repeats}", f"output_root={root}/study"])
        alone = [compose([*common, f"seed={seed}", f"output_root={root}/alone"]) for seed in range(repeats)]
        began = time.perf_counter()
        train(study)
        between = time.perf_counter()
        for config in alone:
            train(config)
        return (time.perf_counter() - between) / (between - began)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20, help="repetitions of the study")
    parser.add_argument("--turns", type=int, default=7, help="measurements of each side")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of a measurement")
    options = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(1)  # as `train` does: threads share chunks instead
    print(f"{options.repeats} repetitions; milliseconds a round, and ratios; goal {GOAL}")
    print(f"{'method':24s} {'apart':>8s} {'together':>8s} {'rounds':>7s} {'run':>6s}")
    for name, own in METHODS.items():
        config = compose([*SETTING, *own, f"repeats={options.repeats}"])
        study = build_runner(build_simulation(config, torch.device("cpu"))[0], config)
        assert isinstance(study, MonteCarloStudy)
        if study.vmapped is None:
            print(f"{name:24s} one after another")
            continue
        sides = measured(replace(study, vmapped=None), options.rounds), measured(study, options.rounds)
        apart, together = (min(side) for side in zip(*[[run() for run in sides] for _ in range(options.turns)]))
        run = whole_run([*SETTING, *own], options.repeats)
        times = f"{1e3 * apart:8.2f} {1e3 * together:8.2f} {apart / together:7.1f} {run:6.1f}"
        print(f"{name:24s} {times}", flush=True)


if __name__ == "__main__":
    main()
