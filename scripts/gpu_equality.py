"""Rounds replayed as CUDA graphs beside the same loops run eagerly, and plain loops: bits, times, waits of the host.

    python -m scripts.gpu_equality [--device cuda] [--precision fp32] [--rounds 10] J1 J2

Graphs and eager loops must leave the same bits, and within a round the host must not wait for the GPU: otherwise the
exit status is 1. Plain loops may differ by rounding. On a CPU, where there are no graphs, eager and plain loops are
compared, with two clients of two samples.
"""

import argparse
import collections
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedcomp.client.contract import LoopRunner
from fedcomp.core.pytree import flatten
from fedcomp.model.precision import PRECISIONS, set_tf32
from fedcomp.runtime.bfloat16 import check_bfloat16
from fedcomp.runtime.process_settings import set_determinism
from fedcomp.simulation.cuda_graphs.capture import Capture, CudaGraphs
from fedcomp.simulation.cuda_graphs.graphed_loop import GraphedLoops
from scripts.arguments import device_here, positive
from scripts.bench_jobs import JOBS, fedcomp_rounds
from scripts.figures import keep

WARM_UP = 3
"""Rounds before the measured ones: the first runs eagerly, the second captures."""


def check(name: str, options: argparse.Namespace) -> bool:
    """Print and keep what is found for one job; whether it is as it must be."""
    device = torch.device(options.device)
    gpu = device.type == "cuda"
    job = replace(JOBS[name].on(device), rounds=1)
    ways: dict[str, Callable[[], LoopRunner | None]] = {
        "graphs": lambda: GraphedLoops(CudaGraphs(device)),
        "eager": lambda: GraphedLoops(Capture()),
        "plain": lambda: None,
    }
    if not gpu:
        job = replace(job, clients=2, batch=2, steps=2)
        del ways["graphs"]
    ends: dict[str, dict[str, Tensor]] = {}
    waits: dict[str, int] = {}
    for way, loop_runner in ways.items():
        advance = fedcomp_rounds(job, device, options.precision, loop_runner())
        ends[way] = _timed(f"{name} {options.precision} {way}", advance, options, device)
        if way == "graphs":
            waits = waits_of(advance)
            print(f"      waits: {waits}")
            print(_kernels(advance), flush=True)
    return _compared(name, ends, waits, options)


def _timed(
    what: str, advance: Callable[[], Any], options: argparse.Namespace, device: torch.device
) -> dict[str, Tensor]:
    """The state's tensors after the warm-up, by name; then prints the time of further rounds."""
    for _ in range(WARM_UP):
        state = advance()
    end = {part: tensor.clone() for part, tensor in flatten(state).items()}
    _wait(device)
    began = time.perf_counter()
    for _ in range(options.rounds):
        advance()
    host = time.perf_counter() - began
    _wait(device)
    milliseconds = [1e3 * seconds / options.rounds for seconds in (time.perf_counter() - began, host)]
    keep(options.figures, what=what, milliseconds=milliseconds[0], host_milliseconds=milliseconds[1])
    print(f"{what:24s} {milliseconds[0]:9.3f} ms a round, of the host {milliseconds[1]:9.3f}", flush=True)
    return end


def _compared(
    name: str, ends: dict[str, dict[str, Tensor]], waits: dict[str, int], options: argparse.Namespace
) -> bool:
    (first, reference), *others = ends.items()
    good = not waits
    for other, state in others:
        same = all(torch.equal(tensor, state[part]) for part, tensor in reference.items())
        gaps = [
            (tensor.double() - state[part].double()).abs().max() for part, tensor in reference.items() if tensor.numel()
        ]
        far = max((float(gap) for gap in gaps), default=0.0)
        good = good and (same or other == "plain")
        keep(options.figures, job=name, compared=[first, other], same_bits=same, largest_difference=far, waits=waits)
        print(f"{name} {first} = {other}: {same}, largest difference {far:.3g}", flush=True)
    return good


def waits_of(work: Callable[[], Any]) -> dict[str, int]:
    """Operations for which the host waits while `work` runs on CUDA, by the place in the package that asks for them."""
    seen: collections.Counter[str] = collections.Counter()

    def note(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object) -> None:
        if "prototype feature" in str(message):  # what torch says when the mode is set first
            return
        inside = [frame for frame in traceback.extract_stack() if "/fedcomp/" in frame.filename]
        place = (inside[-1].filename.rsplit("/fedcomp/")[-1], inside[-1].lineno) if inside else (filename, lineno)
        seen[f"{place[0]}:{place[1]}"] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note
        torch.cuda.set_sync_debug_mode("warn")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return dict(seen)


def _kernels(advance: Callable[[], Any]) -> str:
    """The kernels that take the most time of a round."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        advance()
        torch.cuda.synchronize()
    return found.key_averages().table(sort_by="self_cuda_time_total", row_limit=12, max_name_column_width=60)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> int:
    """Check the jobs; 1 if one is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="+", choices=sorted(JOBS), metavar="job", help=f"of {' '.join(JOBS)}")
    parser.add_argument("--device", type=device_here, default="cuda", help="cpu or cuda")
    parser.add_argument("--precision", default="fp32", choices=PRECISIONS, help="of products")
    parser.add_argument("--rounds", type=positive, default=10, help="rounds that are timed")
    parser.add_argument("--figures", type=Path, help="file to append figures to, as lines of JSON")
    options = parser.parse_intermixed_args()
    device = torch.device(options.device)
    set_tf32(options.precision, device)
    if device.type == "cpu" and options.precision == "bf16":
        check_bfloat16()
    set_determinism(True, device)
    good = [check(name, options) for name in options.jobs]  # all of them, whatever the first says
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
