#!/usr/bin/env python
"""`make bench`, third table: minimal random coding of one round, beside a plain implementation with tensors.

Milliseconds for vectors of 4CNN's size (D = 1,933,258) in blocks of 256 with 256 candidates: minima of measurements
taken in turn, of CPU time on one core, for encoding (posteriors to indices) and decoding (indices to counts). "plain"
is `torch.rand` for all candidates of 64 blocks at a time, a comparison, `bmm` with the log odds, Gumbel noise and
`argmax`; its random numbers cannot be drawn again by a decoder. "ratio" is plain / encode, "goal" the project's upper
limit for encoding. `--device cuda` measures wall-clock time on a GPU, with a synchronisation at the end of each
measurement.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedcomp.compressor.mrc import MRC
from fedcomp.compressor.mrc.thresholds import from_counts, probability
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from scripts.arguments import device_here, positive
from scripts.figures import keep

CASES = (
    ("one client", MRC(), 1, 120),
    ("one client, 16 bits", MRC(bits=16), 1, 120),
    ("ten clients, shared", MRC(), 10, 250),
    ("ten clients, shared, 16 bits", MRC(bits=16), 10, 250),
    ("ten clients, each its own", MRC(candidates="per_client"), 10, 1200),
)
"""(name, codec, clients, goal in ms for encoding on one core)."""
GPU_GOALS = {"ten clients, shared": 2, "ten clients, each its own": 4}
"""ms; 40 for PR's round of 110 messages."""
CHUNK = 64
"""Blocks of the plain form at a time."""
NEVER = float("inf")


def problem(codec: MRC, num_clients: int, dim: int, device: torch.device) -> tuple[Tensor, SharedKnowledge]:
    """Posteriors near a prior of counts of ten, and the shared knowledge."""
    generator = torch.Generator().manual_seed(0)
    counts = torch.randint(0, 11, (1, dim), generator=generator)
    side = from_counts(counts, 10, codec.bits, codec.clamp)
    q = probability(side, codec.bits) + 0.1 * torch.randn(num_clients, dim, generator=generator)
    common = SharedKnowledge(Key(("bench",)), torch.arange(num_clients, device=device), (dim,), side.to(device))
    return q.clamp_(0.01, 0.99).to(device), common


def plain(q: Tensor, prior: Tensor, num_candidates: int, block: int) -> list[Tensor]:
    """Indices of all clients with shared candidates, chunk by chunk, by float32 matrix products."""
    steps = torch.logit(q) - torch.logit(prior)
    pad = -q.shape[1] % (block * CHUNK)
    steps = torch.nn.functional.pad(steps, (0, pad)).view(len(q), -1, block)
    prior = torch.nn.functional.pad(prior, (0, pad), value=0.5).view(-1, 1, block)
    chosen = []
    for first in range(0, len(prior), CHUNK):
        here = slice(first, first + CHUNK)
        ones = torch.rand(CHUNK, num_candidates, block, device=q.device) < prior[here]
        scores = torch.bmm(ones.to(torch.float32), steps[:, here].permute(1, 2, 0))
        noise = -torch.log(-torch.log(torch.rand_like(scores)))
        chosen.append((scores + noise).argmax(1))
    return chosen


def row(name: str, codec: MRC, num_clients: int, goal: int | str, options: argparse.Namespace) -> str:
    """One line of the table."""
    device = torch.device(options.device)
    q, common = problem(codec, num_clients, options.dim, device)
    prior, sender_key = probability(common.side_information, codec.bits)[0], Key(("coin",))
    payload = codec.encode(q, common, sender_key)
    times: list[tuple[float, ...]] = []
    for turn in range(options.repeats):
        calls: list[Callable[[], Any]] = [
            lambda: codec.encode(q, common, sender_key),
            lambda: codec.counts(payload, common),
            lambda: codec.total(payload, common),
        ]
        rival = codec.candidates == "shared" and (turn < 2 or device.type == "cuda")
        if rival:
            calls.append(lambda: plain(q, prior, codec.num_candidates, codec.block))
        spent = tuple(_seconds(call, device) for call in calls)
        times.append(spent if rival else (*spent, NEVER))
    encode, counts, total, other = (1e3 * min(column) for column in zip(*times))
    figures = {"encode_ms": encode, "counts_ms": counts, "total_ms": total, "goal_ms": goal}
    keep(options.figures, case=name, **figures)
    shown = f"{other:9.1f} {other / encode:6.1f}" if other < NEVER else f"{'-':>9s} {'-':>6s}"
    return f"{name:30s} {encode:9.2f} {goal:>6} {counts:9.2f} {total:9.2f} {shown}"


def _seconds(call: Callable[[], Any], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        return time.perf_counter() - began
    began = time.process_time()
    call()
    return time.process_time() - began


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dim", type=positive, default=1_933_258, help="entries; 61706 for LeNet-5")
    parser.add_argument("--repeats", type=positive, default=7, help="measurements of each case")
    parser.add_argument("--device", type=device_here, default="cpu", help="cpu or cuda")
    parser.add_argument("--figures", type=Path, help="file to append the figures of each case to, as a line of JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"D = {options.dim:,} on {options.device}, torch {torch.__version__}, minima of {options.repeats}, ms")
    print(f"{'':30s} {'encode':>9s} {'goal':>6s} {'counts':>9s} {'total':>9s} {'plain':>9s} {'ratio':>6s}")
    for name, codec, num_clients, goal in CASES:
        wanted = goal if options.device == "cpu" else GPU_GOALS.get(name, "-")
        print(row(name, codec, num_clients, wanted, options), flush=True)


if __name__ == "__main__":
    main()
