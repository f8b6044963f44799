#!/usr/bin/env python
"""Checks that a refactor changes no result: records runs of every method before it and compares them after it.

    python scripts/reference.py record before.json      on the old code
    python scripts/reference.py compare before.json     on the new code: bit for bit, except for seconds

Each case is a run of a few rounds by the command line, on the digits and with a fixed seed. The file has every line of
`metrics.jsonl` (and `repetitions.jsonl`), and a checksum of every tensor of the last checkpoint, without their names.
Record and compare on the same machine with the same versions, since processors round differently. `--only WORD` takes
the cases whose names contain WORD.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from sklearn.datasets import load_digits

from fedcomp.runtime.command import exit_status

ROOT = Path(__file__).resolve().parents[1]
CONF = ROOT / "conf"
COMMON = ("rounds=4", "num_clients=6", "threads=1", "pictures=false", "quiet=true", "seed=1")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")

MIXED = {
    "both links lossy": "compressor=topk compressor@downlink=sign compressor.feedback=error downlink.feedback=error",
    "ragged clients, some absent": "partition=dirichlet participation=bernoulli server=adam",
    "uniform participation, momentum": "participation=uniform participation.num_participants=3 server=momentum",
    "chunks": "chunk_size=2 client.momentum=0.9 client.weight_decay=0.001 partition=shards",
    "local Adam, schedule": "client=adam client.lr=0.001 client.schedule=cosine client.clip_norm=1.0",
    "SVRG": "client=svrg participation=bernoulli",
    "convolutions": "dataset=image_folder model=lenet5 rounds=2 client.steps=2 num_clients=3",
    "BatchNorm": "dataset=image_folder model=cnn4_bn rounds=2 client.steps=2 num_clients=3 compressor=sign",
    "float64": "dtype=float64 compressor=qsgd",
    "bf16": "dataset=image_folder precision=bf16 model=lenet5 rounds=2 client.steps=2 num_clients=3",
    "real bytes": "wire=packed compressor=topk compressor@downlink=qsgd",
    "spatial estimator": "compressor=randk compressor.estimator=spatial_avg compressor.fraction=0.2",
    "a study": "repeats=3 compressor=topk compressor.feedback=error",
    "a study of a linear regression": "repeats=3 dataset=diabetes model=linear algorithm=fedavg_svrg",
    "two processes": "device=cpu compressor=topk compressor.feedback=error chunk_size=2",
    "two processes, masks": "device=cpu algorithm=bicompfl_gr chunk_size=2",
}


def cases() -> dict[str, tuple[str, ...]]:
    """{name: overrides}: every algorithm, every compressor on the uplink, and combinations of parts."""
    named: dict[str, tuple[str, ...]] = {}
    for group in ("algorithm", "compressor"):
        for path in sorted((CONF / group).glob("*.yaml")):
            named[f"{group}={path.stem}"] = (f"{group}={path.stem}",)
    return named | {name: tuple(words.split()) for name, words in MIXED.items()}


def run(name: str, overrides: tuple[str, ...]) -> dict[str, Any]:
    """Run one case in its own process: its results, or `error` with the last line that it printed."""
    with tempfile.TemporaryDirectory() as folder:
        python = TORCHRUN if name.startswith("two processes") else (sys.executable,)
        if "dataset=image_folder" in overrides:
            _draw_digits(Path(folder) / "images")
            overrides = (*overrides, f"dataset.folder={folder}/images")
        command = [*python, "-m", "fedcomp", *COMMON, *overrides, f"output_root={folder}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1]}
        (record,) = Path(folder).rglob("metrics.jsonl")
        kept: dict[str, Any] = {"metrics": _lines(record)}
        if record.with_name("repetitions.jsonl").exists():
            kept["repetitions"] = _lines(record.with_name("repetitions.jsonl"))
        state = torch.load(record.with_name("checkpoint.pt"), map_location="cpu", weights_only=True)["state"]
        return kept | {"tensors": sorted(_checksum(tensor) for tensor in state.values())}


def _draw_digits(folder: Path) -> None:
    """Write the first 800 digits of scikit-learn as grey images of 16 x 16 pixels, a quarter of them for testing."""
    digits = load_digits()
    for number, (image, label) in enumerate(zip(digits.images[:800], digits.target)):
        target = folder / ("test" if number % 4 == 0 else "train") / str(label)
        target.mkdir(parents=True, exist_ok=True)
        pixels = Image.fromarray((image * 15).astype("uint8")).resize((16, 16), Image.Resampling.NEAREST)
        pixels.save(target / f"{number}.png")


def _lines(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


EMPTY = hashlib.sha256(b"").hexdigest()[:16]
"""The checksum of a memory that holds nothing: it may come or go."""


def _checksum(tensor: torch.Tensor) -> str:
    data = tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    return f"{tensor.dtype} {list(tensor.shape)} {hashlib.sha256(data).hexdigest()[:16]}"


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The differences of two results of one case, a line each; added metrics are not a difference."""
    if "error" in before or "error" in after:
        both = before.get("error"), after.get("error")
        return [] if both[0] == both[1] else [f"error was {both[0]}, is {both[1]}"]
    lines = []
    for file in ("metrics", "repetitions"):
        old, new = before.get(file, []), after.get(file, [])
        if len(old) != len(new):
            lines.append(f"{file}: {len(old)} lines, now {len(new)}")
        for one, other in zip(old, new):
            for key, value in one.items():
                if key not in other or other[key] != value:
                    lines.append(f"{file}, round {one['round']}: {key} was {value}, is {other.get(key)}")
                    break
    old, new = ([one for one in result["tensors"] if not one.endswith(EMPTY)] for result in (before, after))
    if old != new:
        lines.append(f"checkpoint: {len(set(old) ^ set(new))} tensors differ")
    return lines


def main() -> int:
    """Record or compare. Returns 1 if a case failed or differs, 2 for a wrong argument."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--jobs", type=int, default=2, help="cases at once")
    given = parser.parse_args()
    return exit_status(lambda: _main(given))


def _main(given: argparse.Namespace) -> int:
    chosen = {name: own for name, own in cases().items() if given.only in name}
    if not chosen:
        raise ValueError(f"--only {given.only}: no case has that in its name, such as {', '.join([*cases()][:3])}")
    before = json.loads(given.file.read_text()) if given.what == "compare" else {}
    if not given.file.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {given.file.parent}, in which {given.file.name} shall lie")
    with ThreadPoolExecutor(given.jobs) as pool:
        results = dict(zip(chosen, pool.map(run, chosen, chosen.values())))
    if given.what == "record":
        given.file.write_text(json.dumps(results, indent=1) + "\n")
        failed = {name: one["error"] for name, one in results.items() if "error" in one}
        for name, error in failed.items():
            print(f"{name}: {error}")
        print(f"{len(results)} cases, {len(failed)} of them failed, in {given.file}")
        return int(bool(failed))
    gone = [name for name in before if given.only in name and name not in results]
    for name in gone:
        print(f"{name}: is gone")
    wrong = len(gone)
    for name, after in results.items():
        changes = differences(before[name], after) if name in before else ["is new"]
        wrong += bool(changes) and name in before
        if changes:
            print(f"{name}: {'; '.join(changes[:3])}")
    print(f"{len(results)} cases compared, {wrong} differ")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
