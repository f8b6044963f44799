#!/usr/bin/env python
"""`make rivals`: whole rounds of fedcomp beside pfl-research and FedJAX, each in an environment of its own.

Every side trains the same network on as many clients, samples, batches and steps, in processes of its own, in turn;
a turn's figure is the median over its rounds, the table's the median over turns. Where fedcomp and pfl-research use
two cores they do so as each does best: fedcomp in two threads, pfl-research in two processes.
"""

import argparse
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedcomp.runtime.process_settings import keep_freed_memory
from scripts import bench_jobs
from scripts.arguments import positive

ROOT = Path(__file__).resolve().parents[1]
RIVALS = ROOT / "scripts" / "rivals"
PFL, FEDJAX = ROOT / ".venv-pfl" / "bin" / "python", ROOT / ".venv-fedjax" / "bin" / "python"
TORCHRUN = "-m", "torch.distributed.run", "--standalone"
SIDES = {
    "fedcomp, 1 thread": (sys.executable, __file__, "--threads", "1"),
    "fedcomp, 2 threads": (sys.executable, __file__, "--threads", "2"),
    "pfl-research, 1 process": (str(PFL), str(RIVALS / "pfl_research.py")),
    "pfl-research, 2 processes": (str(PFL), *TORCHRUN, "--nproc_per_node=2", str(RIVALS / "pfl_research.py")),
    "FedJAX": (str(FEDJAX), str(RIVALS / "fedjax_rounds.py")),
}


def rounds_of_fedcomp(name: str, rounds: int, threads: int) -> None:
    """Print the seconds of every round but the first two."""
    keep_freed_memory()
    torch.set_num_threads(1)
    bench_jobs.num_cores = lambda: threads
    run = bench_jobs.fedcomp_side(replace(bench_jobs.JOBS[name], rounds=1), torch.device("cpu"), "fp32")
    for index in range(rounds + 2):
        began = time.perf_counter()
        run()
        if index > 1:
            print(time.perf_counter() - began, flush=True)


def main() -> None:
    """Print the table, or run one side of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=("J1", "J2"), help="see bench_jobs.py")
    parser.add_argument("rounds", type=positive, nargs="?", default=20, help="of each side in each turn")
    parser.add_argument("--turns", type=positive, default=3)
    parser.add_argument("--threads", type=positive, help="fedcomp alone, in so many threads: the seconds of each round")
    options = parser.parse_args()
    if options.threads:
        rounds_of_fedcomp(options.job, options.rounds, options.threads)
        return
    found: dict[str, list[float]] = {name: [] for name, side in SIDES.items() if Path(side[0]).exists()}
    for _ in range(options.turns):
        for name in found:
            command = [*SIDES[name], options.job, str(options.rounds)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found[name].append(statistics.median(float(line) for line in output.split()))
    print(f"{bench_jobs.JOBS[options.job]}: medians of {options.turns} turns of {options.rounds} rounds")
    for name, seconds in found.items():
        print(f"{name:28s} {1e3 * statistics.median(seconds):9.2f} ms a round")


if __name__ == "__main__":
    main()
