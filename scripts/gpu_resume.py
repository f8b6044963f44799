"""Exact resume: a run that is stopped by SIGTERM and started again, beside one that is not.

    python -m scripts.gpu_resume [--device cuda] [--rounds 40] [override ...]

Both are runs of the command line. Every line of their metrics must be the same but for seconds, and so must every
tensor of their last checkpoints: otherwise the exit status is 1.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from fedcomp.records.metrics_file import read_lines
from scripts.arguments import device_here, positive

CLIENTS = ["partition=dirichlet", "participation=bernoulli", "num_clients=10", "client.momentum=0.9", "compressor=topk"]
COMMON = ["pictures=false", "quiet=true", "compressor.feedback=error", "seed=1"]


def main() -> int:
    """Run both; 1 if they differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="of the run, such as dataset=mnist model=lenet5")
    parser.add_argument("--device", type=device_here, default="cuda", help="cpu or cuda")
    parser.add_argument("--rounds", type=positive, default=40)
    options = parser.parse_intermixed_args()
    overrides = [*CLIENTS, *COMMON, f"device={options.device}", f"rounds={options.rounds}", *options.overrides]
    with tempfile.TemporaryDirectory() as folder:
        whole, cut = Path(folder, "whole"), Path(folder, "cut")
        _finish(_start(overrides, whole))
        rounds_before = _stop_in_the_middle(_start(overrides, cut), cut, options.rounds)
        _finish(_start(overrides, cut))
        differences = compare(whole, cut)
    print(f"stopped after {rounds_before} of {options.rounds} rounds: {'; '.join(differences) or 'the same'}")
    return int(bool(differences))


def compare(whole: Path, cut: Path) -> list[str]:
    """What differs between the runs below the two folders."""
    found = []
    lines = [[{**line, "seconds": 0} for line in read_lines(_only(root, "metrics.jsonl"))] for root in (whole, cut)]
    found += [f"line {index} of the metrics" for index, (one, other) in enumerate(zip(*lines)) if one != other][:3]
    if len(lines[0]) != len(lines[1]):
        found.append(f"{len(lines[0])} and {len(lines[1])} lines")
    states = [torch.load(_only(root, "checkpoint.pt"), "cpu", weights_only=True)["state"] for root in (whole, cut)]
    return found + [f"state {name}" for name, tensor in states[0].items() if not torch.equal(tensor, states[1][name])]


def _start(overrides: list[str], root: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "fedcomp", *overrides, f"output_root={root}"])


def _finish(process: subprocess.Popen[bytes]) -> None:
    if process.wait() != 0:
        raise SystemExit(f"a run ended with status {process.returncode}")


def _stop_in_the_middle(process: subprocess.Popen[bytes], root: Path, rounds: int) -> int:
    """Stop the run when a third of its rounds is recorded; the round of its last line."""
    while process.poll() is None:
        done = max([_last_round(path) for path in root.rglob("metrics.jsonl")], default=0)
        if done >= rounds // 3:
            process.send_signal(signal.SIGTERM)
            process.wait()
            break
        time.sleep(0.002)
    stopped_at = _last_round(_only(root, "metrics.jsonl"))
    if process.returncode == 0 or stopped_at >= rounds:
        raise SystemExit(f"the run ended before it was stopped: take more than --rounds {rounds}")
    return stopped_at


def _last_round(path: Path) -> int:
    try:
        return int(read_lines(path)[-1]["round"])
    except (ValueError, IndexError):  # no line yet, or half of one
        return 0


def _only(root: Path, name: str) -> Path:
    (path,) = root.rglob(name)
    return path


if __name__ == "__main__":
    sys.exit(main())
