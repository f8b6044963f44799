#!/usr/bin/env python
"""`make bench`: whole rounds of fedcomp against the plain loop of `naive_loop.py`, as ratios, in one run.

Both sides train the same clients on the same data with the same batch size, steps and learning rate, in turn, A B A B;
the table shows the median of the ratios pair by pair. fedcomp's side is the complete round: drawing batches, messages,
ledger, server step. Peak memory is that of a process of its own for each side.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.client.sgd import Sgd
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.keys import Key
from fedcomp.model.build import build
from fedcomp.model.chunking import chunk_size
from fedcomp.model.cnn import cnn4, lenet5
from fedcomp.model.cnn_bn import cnn4_bn
from fedcomp.model.mlp import mlp
from fedcomp.participation.full import Full
from fedcomp.server.sgd import Sgd as ServerSgd
from fedcomp.simulation.local import Shards
from fedcomp.simulation.loop import Simulation
from fedcomp.simulation.malloc import keep_freed_memory
from fedcomp.wire import Ledger
from scripts.naive_loop import naive_round


@dataclass(frozen=True)
class Job:
    """One comparison.

    Attributes:
        what: shown in the table. factory: makes the network. shape: of one sample. clients, batch, steps: of a round.
        goal: the ratio that the project wants at least. rounds: timed together as one measurement.
    """

    what: str
    factory: Callable[..., torch.nn.Module]
    shape: tuple[int, ...]
    clients: int
    batch: int
    steps: int
    goal: float
    rounds: int = 1


JOBS = {
    "J1": Job("MLP 64-32-10, 20 clients, batch 10, 8 steps", mlp, (64,), 20, 10, 8, 40, rounds=5),
    "J2": Job("LeNet-5, 10 clients, batch 64, 10 steps", lenet5, (1, 28, 28), 10, 64, 10, 2),
    "J4": Job("CNN4 with BatchNorm, 10 clients, batch 64, 3 steps", cnn4_bn, (3, 32, 32), 10, 64, 3, 1.5),
    "J3": Job("4CNN (1,933,258), 10 clients, batch 128, 3 steps", cnn4, (1, 28, 28), 10, 128, 3, 1.2),
}
LR = 0.05


def fedcomp_side(job: Job) -> Callable[[], None]:
    """A function that runs one complete round of fedcomp."""
    per_client, cpu = job.batch * job.steps, torch.device("cpu")
    x, y = _data(job)
    raw = x.movedim(1, -1).contiguous() if len(job.shape) == 3 else x
    dataset = Dataset("bench", Samples(raw, y), Samples(raw[:64], y[:64]), "classification", 10)
    key = Key(("bench",))
    model = build(job.factory, key, job.shape, 10, "classification")
    parts = list(torch.arange(len(y)).split(per_client))
    algorithm = FedAvg(
        Sgd(lr=LR, batch_size=job.batch, steps=job.steps), ServerSgd(), Compressor(Dense()), Compressor(Dense())
    )
    at_once = chunk_size(model, cpu, job.shape, job.batch)
    torch.set_num_threads(1 if job.shape == (64,) else 2)
    simulation = Simulation(algorithm, dataset, Shards.of(parts, cpu), model, Full(), key, 1, at_once)
    state, ledger, index = simulation.init(), Ledger(), 0

    def run() -> None:
        nonlocal state, index
        for _ in range(job.rounds):
            state, _, _ = simulation.round(index, state, ledger)
            index += 1

    return run


def naive_side(job: Job) -> Callable[[], None]:
    """A function that runs one round of the plain loop."""
    x, y = _data(job)
    per_client = job.batch * job.steps
    clients = list(zip(x.split(per_client), y.split(per_client)))
    module = job.factory(job.shape, 10)

    def run() -> None:
        for _ in range(job.rounds):
            module.load_state_dict(naive_round(module, clients, job.batch, job.steps, LR))

    return run


SIDES = {"fedcomp": fedcomp_side, "naive": naive_side}


def compare(name: str, repeats: int) -> None:
    """Print one row of the table."""
    job = JOBS[name]
    all_cores = torch.get_num_threads()
    ours, theirs = fedcomp_side(job), naive_side(job)
    our_threads = torch.get_num_threads()
    seconds: dict[str, list[float]] = {"fedcomp": [], "naive": []}
    for turn in range(repeats + 1):
        for side, run, threads in (("naive", theirs, all_cores), ("fedcomp", ours, our_threads)):
            torch.set_num_threads(threads)
            began = time.perf_counter()
            run()
            if turn:  # the first turn warms up
                seconds[side].append((time.perf_counter() - began) / job.rounds)
    torch.set_num_threads(all_cores)
    ratio = statistics.median(slow / fast for slow, fast in zip(seconds["naive"], seconds["fedcomp"]))
    medians = {side: 1e3 * statistics.median(values) for side, values in seconds.items()}
    peak = {side: _peak(name, side) for side in SIDES}
    print(
        f"{name}  {job.what:52s} {medians['naive']:9.1f} {medians['fedcomp']:9.1f} {ratio:7.1f} {job.goal:6.1f}"
        f" {peak['naive']:9.0f} {peak['fedcomp']:9.0f}",
        flush=True,
    )


def _peak(name: str, side: str) -> float:
    """Peak resident MiB of a process that runs two rounds of one side."""
    command = [sys.executable, __file__, "--peak", name, side]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _data(job: Job) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    num = job.clients * job.batch * job.steps
    return torch.randn(num, *job.shape, generator=generator), torch.randint(0, 10, (num,), generator=generator)


def main() -> None:
    """Print the table, or with --peak the memory of one side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", default=list(JOBS), help="J1 J2 J4 J3; all by default")
    parser.add_argument("--repeats", type=int, default=7, help="pairs of measurements a job")
    parser.add_argument("--peak", nargs=2, metavar=("JOB", "SIDE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    keep_freed_memory()
    if options.peak:
        name, side = options.peak
        run = SIDES[side](JOBS[name])
        run()
        run()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, median of {options.repeats} pairs")
    print(f"{'':4s}{'a round of':52s} {'naive ms':>9s} {'ours ms':>9s} {'ratio':>7s} {'goal':>6s} {'naive MiB':>9s} {'ours MiB':>9s}")
    for name in options.jobs:
        compare(name, options.repeats)


if __name__ == "__main__":
    main()
