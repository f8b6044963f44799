#!/usr/bin/env python
"""LeNet-5 on MNIST under torch's DistributedDataParallel with each hook: the table of docs/codecs.md.

    python -m scripts.ddp_table --processes 2 --steps 300

Each process has every W-th training sample and batches of 32. Accuracy is of the first 2,000 test samples; bits are of
one process and step, per parameter; bytes are those that a process gives to collectives; seconds are of the whole
training, with all processes on this machine, gloo.
"""

import argparse
import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import fedcomp.codecs as fc
from fedcomp.codecs import ddp
from fedcomp.compressor import Compressor
from fedcomp.dataset.images import mnist
from fedcomp.model.networks.cnn import lenet5
from scripts.arguments import positive

LR, BATCH = 0.1, 32
LOWER = {"Rand-k 10 %": 0.02, "shared Rand-k 10 %, error memory": 0.03}
"""Rates of what adds much noise, or sends late; the others have `LR`."""
GATHERED = {
    "dense": ("dense", {}),
    "top 1 %, error feedback": ("topk", {"fraction": 0.01, "feedback": "error"}),
    "sign, error feedback": ("sign", {"feedback": "error"}),
    "DRIVE, error feedback": ("drive", {"feedback": "error"}),
    "EDEN, 2 bits": ("eden", {"bits": 2}),
    "QSGD, 127 levels": ("qsgd", {"levels": 127}),
    "Rand-k 10 %": ("randk", {"fraction": 0.1}),
}
Hooks = dict[str, tuple[Callable[[nn.Module], Any], Any]]


def hooks() -> Hooks:
    """{label: (what makes the hook's state, the hook)}."""
    gathered: Hooks = {
        label: (functools.partial(_gathered, fc.compressor(name, **options)), ddp.all_gather_hook)
        for label, (name, options) in GATHERED.items()
    }
    shared = {
        "shared Rand-k 10 %, error memory": (lambda model: ddp.HookState(model, fraction=0.1), ddp.shared_randk_hook),
        "PowerSGD, rank 2": (lambda model: ddp.HookState(model, rank=2), ddp.powersgd_hook),
    }
    torchs = {
        "torch: fp16_compress_hook": (lambda model: None, default_hooks.fp16_compress_hook),
        "torch: powerSGD_hook, rank 2": (
            lambda model: powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2),
            powerSGD_hook.powerSGD_hook,
        ),
    }
    return gathered | shared | torchs


def _gathered(compressor: Compressor, model: nn.Module) -> ddp.HookState:
    return ddp.HookState(model, compressor)


def train(rank: int, size: int, steps: int, folder: Path) -> None:
    """One process: train with each hook, and save rows of the table."""
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), size), rank=rank, world_size=size)
    torch.set_num_threads(1)
    data = mnist.load(root=os.environ.get("FEDCOMP_DATA", "~/.cache/fedcomp"))
    x, y = data.normalise(data.train.x[rank::size]), data.train.y[rank::size]
    test_x, test_y = data.normalise(data.test.x[:2000]), data.test.y[:2000]
    rows = []
    for label, (make, hook) in hooks().items():
        torch.manual_seed(0)
        model = lenet5((1, 28, 28), 10)
        parallel, state = DistributedDataParallel(model), make(model)
        parallel.register_comm_hook(state, hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=LOWER.get(label, LR))
        batches = torch.Generator().manual_seed(rank)
        began = time.perf_counter()
        for _ in range(steps):
            chosen = torch.randint(len(y), (BATCH,), generator=batches)
            optimizer.zero_grad()
            nn.functional.cross_entropy(parallel(x[chosen]), y[chosen]).backward()
            optimizer.step()
        seconds = time.perf_counter() - began
        with torch.no_grad():
            accuracy = float((model(test_x).argmax(1) == test_y).float().mean())
        count = state.count if isinstance(state, ddp.HookState) else None
        dim = sum(parameter.numel() for parameter in model.parameters())
        rows.append((label, accuracy, count, seconds, dim))
        dist.barrier()
    torch.save(rows, folder / f"{rank}.pt")
    dist.destroy_process_group()


def main() -> None:
    """Start the processes, and print the table of the first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=positive, default=2)
    parser.add_argument("--steps", type=positive, default=300)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        train(given.rank, given.processes, given.steps, given.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        shared = ["--processes", str(given.processes), "--steps", str(given.steps), "--folder", folder]
        command = [sys.executable, "-m", "scripts.ddp_table", *shared, "--rank"]
        running = [subprocess.Popen([*command, str(rank)]) for rank in range(given.processes)]
        if [one.wait() for one in running] != [0] * given.processes:
            raise SystemExit("a process failed: see above")
        rows = torch.load(Path(folder) / "0.pt", weights_only=False)
    print("| hook | test accuracy (%) | bits a parameter and step | bytes carried a step | seconds |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for label, accuracy, count, seconds, dim in rows:
        sent = f"{count.bits / dim / given.steps:.3f} | {count.carried / given.steps:,.0f}" if count else " | "
        print(f"| {label} | {100 * accuracy:.1f} | {sent} | {seconds:.1f} |")


if __name__ == "__main__":
    main()
