#!/usr/bin/env python
"""`make bench`: the time of a round of fedcomp relative to the plain loop of `naive_loop.py`.

All sides train the same clients with the same batch size, steps and learning rate, each in its own process, in turn:
A B C A B C. A ratio is the median over turns. fedcomp's side is the complete round with batches, messages, ledger and
server step. The plain loop has torch's defaults (on a GPU: products in float32, convolutions in TensorFloat-32). Each
measurement ends by synchronising with the GPU.

"copy" and "matmul" are lower bounds of the local steps' time, at the device's measured rates of copying and of matrix
products (`ceilings.py`), in per cent of fedcomp's time. MiB are peaks of the process, or of a GPU's memory. Further
ratios: to `lean_loop.py` ("lean"), which on a CPU has fedcomp's setting of malloc, also with one thread ("lean, 1"),
and to the plain loop with that setting ("malloc"). Faults are page faults per round.
"""

import argparse
import resource
import statistics
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedcomp.model.precision import PRECISIONS, set_tf32
from fedcomp.runtime.bfloat16 import check_bfloat16
from fedcomp.runtime.cores import num_cores
from fedcomp.runtime.process_settings import keep_freed_memory, set_determinism
from scripts.arguments import device_here, one_of, positive
from scripts.bench_jobs import CPU_JOBS, JOBS, Job, fedcomp_side, lean_side, naive_side
from scripts.ceilings import Ceilings, least_bytes, measure, operations
from scripts.figures import keep
from scripts.turns import in_turn

CPU_SIDES = "naive", "naive+malloc", "lean", "lean, 1 thread", "fedcomp"
GPU_SIDES = "naive", "lean", "fedcomp"


@dataclass(frozen=True)
class Served:
    """Measurements of one side: seconds per round of every turn but the first, peak MiB, page faults per round."""

    seconds: list[float]
    peak: float
    faults: float


def serve(job: Job, side: str, device: torch.device, precision: str) -> None:
    """Time a measurement for every line on standard input; at its end print peak MiB and page faults per round."""
    gpu = device.type == "cuda"
    if gpu:
        torch.cuda.set_device(device.index or 0)
    elif side != "naive":
        keep_freed_memory()
    if side == "fedcomp":
        set_tf32(precision, device)
        set_determinism(True, device)  # as a run does
        if not gpu:
            torch.set_num_threads(1)  # as `train` does: threads share chunks instead
        run = fedcomp_side(job, device, precision)
    elif side.startswith("lean"):
        if side != "lean":
            torch.set_num_threads(1)
        run = lean_side(job, device)
    else:
        run = naive_side(job, device)
    if gpu:
        run()  # a recorded loop runs as it is the first time; the first turn, which does not count, then records it
    turns, start = 0, 0
    for _ in sys.stdin:
        began = time.perf_counter()
        run()
        if gpu:
            torch.cuda.synchronize()
        print((time.perf_counter() - began) / job.rounds, flush=True)
        turns += 1
        if turns == 1:
            start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    usage = resource.getrusage(resource.RUSAGE_SELF)
    peak = torch.cuda.max_memory_allocated() / 2**20 if gpu else usage.ru_maxrss / 1024
    print(peak, (usage.ru_minflt - start) / max(turns - 1, 1) / job.rounds)


def compare(name: str, options: argparse.Namespace, ceilings: Ceilings) -> str:
    """One row of the table."""
    device = torch.device(options.device)
    job = JOBS[name].on(device)
    found = _served(name, options, GPU_SIDES if device.type == "cuda" else CPU_SIDES)
    ours = found["fedcomp"]
    best = statistics.median(ours.seconds)
    goal = job.goal_ms if device.type == "cuda" else job.goal
    keep(
        options.figures,
        job=name,
        precision=options.precision,
        milliseconds=1e3 * best,
        goal_ms=job.goal_ms if device.type == "cuda" else None,
        ratio_to_plain_loop=_ratio(found, "naive"),
        ratio_to_lean_loop=_ratio(found, "lean"),
        peak_mib=ours.peak,
    )
    row = (
        f"{name:3s} {job!s:56s} {1e3 * statistics.median(found['naive'].seconds):9.2f} {1e3 * best:8.2f} "
        f"{_ratio(found, 'naive'):6.1f} {'-' if goal is None else goal:>5} "
        f"{100 * least_bytes(job) / ceilings.copy / best:6.1f} {100 * operations(job) / ceilings.product / best:7.1f} "
        f"{found['naive'].peak:9.0f} {ours.peak:8.0f} {_ratio(found, 'lean'):6.1f}"
    )
    if device.type == "cuda":
        return row
    more = _ratio(found, "lean, 1 thread"), _ratio(found, "naive+malloc")
    return f"{row} {more[0]:7.1f} {more[1]:6.1f} {found['naive'].faults:12.0f} {ours.faults:11.0f}"


def _served(name: str, options: argparse.Namespace, sides: tuple[str, ...]) -> dict[str, Served]:
    """Every side's measurements, taken in turn."""
    where = ["--device", options.device, "--precision", options.precision]
    where += ["--rounds", str(options.rounds)] if options.rounds else []
    commands = {side: [sys.executable, __file__, "--serve", name, side, *where] for side in sides}
    return {side: Served(seconds, *end) for side, (seconds, end) in in_turn(commands, options.repeats).items()}


def _ratio(found: dict[str, Served], rival: str) -> float:
    pairs = zip(found[rival].seconds, found["fedcomp"].seconds)
    return statistics.median(slow / fast for slow, fast in pairs)


def main() -> None:
    """Print the table, or serve one side of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "jobs", nargs="*", type=one_of(JOBS), help=f"of {' '.join(JOBS)}; default: {' '.join(CPU_JOBS)}, on a GPU all"
    )
    parser.add_argument("--repeats", type=positive, default=9, help="measurements of each side of a job")
    parser.add_argument("--device", type=device_here, default="cpu", help="cpu, cuda or cuda:<number>")
    parser.add_argument("--precision", default="fp32", choices=PRECISIONS, help="of our products")
    parser.add_argument("--rounds", type=positive, help="rounds of a measurement; each job's own number by default")
    parser.add_argument("--figures", type=Path, help="file to append the figures of each job to, as a line of JSON")
    parser.add_argument("--serve", nargs=2, metavar=("JOB", "SIDE"), help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    device = torch.device(options.device)
    if options.serve:
        name, side = options.serve
        job = JOBS[name].on(device)
        serve(replace(job, rounds=options.rounds or job.rounds), side, device, options.precision)
        return
    gpu = device.type == "cuda"
    set_tf32(options.precision, device)
    if device.type == "cpu" and options.precision == "bf16":
        check_bfloat16()
    ceilings = measure(device, options.precision)
    where = torch.cuda.get_device_name(device) if gpu else f"{num_cores()} cores"
    print(f"torch {torch.__version__}, {where}, {options.precision}, medians of {options.repeats} interleaved turns")
    print(f"copy {ceilings.copy / 1e9:.0f} GB/s, matmul {ceilings.product / 1e12:.2f} TFLOP/s")
    goal, more = ("goal ms", "") if gpu else ("goal", " lean, 1 malloc naive faults ours faults")
    print(f"    {'a round of':56s} naive ms ours ms ratio {goal} copy % matmul % naive MiB ours MiB   lean{more}")
    for name in options.jobs or (JOBS if gpu else CPU_JOBS):
        print(compare(name, options, ceilings), flush=True)


if __name__ == "__main__":
    main()
