#!/usr/bin/env python
"""`make bench`: whole rounds of fedcomp against the plain loop of `naive_loop.py`, as ratios, in one run.

Both sides train the same number of clients on the same data with the same batch size, steps and learning rate, each in
a process of its own, in turn: A B C A B C. The ratio is the median over turns. fedcomp's side is the complete round,
with drawing batches, messages, ledger and server step; the rival is as everybody writes it, torch's defaults included.
"to malloc" is the ratio to a rival that is given fedcomp's setting of malloc; MiB are peaks of the whole
process, faults are page faults a round.
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
from fedcomp.simulation.workers import Workers, num_cores
from fedcomp.wire import Ledger, Link
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
    "J1": Job("MLP 64-32-10, 20 clients, batch 10, 8 steps", mlp, (64,), 20, 10, 8, 40, rounds=20),
    "J2": Job("LeNet-5, 10 clients, batch 64, 10 steps", lenet5, (1, 28, 28), 10, 64, 10, 2),
    "J4": Job("CNN4 with BatchNorm, 10 clients, batch 64, 3 steps", cnn4_bn, (3, 32, 32), 10, 64, 3, 1.5),
    "J3": Job("4CNN (1,933,258), 10 clients, batch 128, 1 step", cnn4, (1, 28, 28), 10, 128, 1, 1.2),
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
    shards, workers = Shards.of(parts, cpu), Workers(num_cores())
    simulation = Simulation(algorithm, dataset, shards, model, Full(), key, 1, at_once, Link, cpu, workers)
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


def serve(name: str, side: str) -> None:
    """Time a measurement for every line on standard input; at its end print peak MiB and page faults a round."""
    if side == "naive":
        run = naive_side(JOBS[name])
    else:
        keep_freed_memory()
        if side == "fedcomp":
            torch.set_num_threads(1)  # as `train` does: threads share chunks instead
        run = naive_side(JOBS[name]) if side == "naive+malloc" else fedcomp_side(JOBS[name])
    turns, start = 0, 0
    for _ in sys.stdin:
        began = time.perf_counter()
        run()
        print((time.perf_counter() - began) / JOBS[name].rounds, flush=True)
        turns += 1
        if turns == 1:
            start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(usage.ru_maxrss / 1024, (usage.ru_minflt - start) / max(turns - 1, 1) / JOBS[name].rounds)


def compare(name: str, repeats: int) -> None:
    """Print one row of the table."""
    job = JOBS[name]
    served = {side: _start(name, side) for side in ("naive", "naive+malloc", "fedcomp")}
    seconds: dict[str, list[float]] = {side: [] for side in served}
    for turn in range(repeats + 1):
        for side, process in served.items():
            taken = _ask(process)
            if turn:  # the first turn warms up
                seconds[side].append(taken)
    ends = {side: process.communicate()[0].split() for side, process in served.items()}
    peak, faults = ({side: float(end[index]) for side, end in ends.items()} for index in (0, 1))
    ratio, against_malloc = (
        statistics.median(slow / fast for slow, fast in zip(seconds[rival], seconds["fedcomp"]))
        for rival in ("naive", "naive+malloc")
    )
    median = {side: 1e3 * statistics.median(values) for side, values in seconds.items()}
    print(
        f"{name:3s} {job.what:52s} {median['naive']:8.1f} {median['fedcomp']:8.1f} {ratio:6.1f} {job.goal:5.1f} "
        f"{against_malloc:9.1f} {peak['naive']:9.0f} {peak['fedcomp']:8.0f} "
        f"{faults['naive']:12.0f} {faults['fedcomp']:11.0f}",
        flush=True,
    )


def _start(name: str, side: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--serve", name, side]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _ask(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def _data(job: Job) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    num = job.clients * job.batch * job.steps
    return torch.randn(num, *job.shape, generator=generator), torch.randint(0, 10, (num,), generator=generator)


def main() -> None:
    """Print the table, or serve one side of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", default=list(JOBS), help="J1 J2 J4 J3; all by default")
    parser.add_argument("--repeats", type=int, default=9, help="measurements of each side of a job")
    parser.add_argument("--serve", nargs=2, metavar=("JOB", "SIDE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve)
        return
    print(f"torch {torch.__version__}, {num_cores()} cores, medians of {options.repeats} interleaved measurements")
    titles = (
        "naive ms",
        "ours ms",
        "ratio",
        "goal",
        "to malloc",
        "naive MiB",
        "ours MiB",
        "naive faults",
        "ours faults",
    )
    print(f"    {'a round of':52s} {' '.join(titles)}")
    for name in options.jobs:
        compare(name, options.repeats)


if __name__ == "__main__":
    main()
