#!/usr/bin/env python
"""`make bench`, second table: the time of every codec in conf/compressor on a CPU, relative to a copy of its input.

Codecs are composed from their YAML, so new ones are included. Times are nanoseconds per entry of [M, D] float32 in one
thread: medians of measurements taken in turn with `copy_` of the same tensor. "ratio" is (encode + decode) / copy
within a turn, "goal" the project's upper limit on a CPU. Bits are those of the message; "pack" and "unpack" are seconds
for the bytes of one row. MiB is the peak memory of the codec's own process above that before the first encoding.
`--device cuda` measures on a GPU, with a synchronisation at the end of each measurement; its MiB are those of the GPU.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedcomp.config.compose import compose
from fedcomp.config.instantiate import build_compressor
from fedcomp.core.folders import CONF
from fedcomp.model.build import build
from fedcomp.model.networks.cnn import cnn4
from fedcomp.random.keys import Key
from fedcomp.runtime.process_settings import keep_freed_memory, set_determinism
from fedcomp.wire import SharedKnowledge
from fedcomp.wire.packing import layout, pack, unpack
from scripts.arguments import device_here, positive
from scripts.figures import keep

GOALS = dict.fromkeys(("sign", "stochastic_sign", "terngrad", "qsgd", "randk"), 15)
GOALS |= {"drive": 60, "eden": 60, "topk": 40}
"""{codec: upper limit of the ratio}."""
TITLES = ("encode ns", "decode ns", "copy ns", "ratio", "goal", "bits/param", "MiB", "pack s", "unpack s")


def layer_sizes(dim: int | None) -> tuple[int, ...]:
    """The layers of cnn4 (D = 1,933,258), or one layer of `dim` entries."""
    if dim is not None:
        return (dim,)
    model = build(cnn4, Key(("bench",)), (1, 28, 28), 10, "classification")
    return tuple(model.layers)


def row(name: str, layers: tuple[int, ...], options: argparse.Namespace) -> str:
    """One codec's numbers, as a line of the table."""
    codec = build_compressor(compose([f"compressor={name}"]).compressor).codec
    device, num_clients = torch.device(options.device), options.clients
    if device.type == "cuda":
        set_determinism(True, device)  # as a run does
    common = SharedKnowledge(Key(("bench", name)), torch.arange(num_clients, device=device), layers)
    x = torch.randn(num_clients, common.dim, generator=torch.Generator().manual_seed(0)).to(device)
    copy, sender_key = torch.empty_like(x), common.key.fold_in("coin")
    before = _peak_mib(device)
    payload = codec.encode(x, common, sender_key)
    codec.decode(payload, common)
    peak = _peak_mib(device) - before
    calls = (lambda: codec.encode(x, common, sender_key), lambda: codec.decode(payload, common), lambda: copy.copy_(x))
    times = [[_seconds(call, device) for call in calls] for _ in range(options.repeats)]
    encode, decode, plain = (1e9 * statistics.median(column) / x.numel() for column in zip(*times))
    ratio = statistics.median((first + second) / third for first, second, third in times)
    message = pack(payload, 0)
    packing = _seconds(lambda: pack(payload, 0), device)
    unpacking = _seconds(lambda: unpack([message], layout(payload), device), device)
    bits = float(payload.bits.double().mean()) / common.dim
    keep(options.figures, codec=name, encode_ns=encode, decode_ns=decode, copy_ns=plain, copies=ratio, bits=bits)
    return (
        f"{name:18s} {encode:9.2f} {decode:9.2f} {plain:7.2f} {ratio:5.1f} {GOALS.get(name, '-'):>4} {bits:10.4f} "
        f"{peak:5.0f} {packing:6.3f} {unpacking:8.3f}"
    )


def _peak_mib(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _seconds(call: Callable[[], Any], device: torch.device) -> float:
    began = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def main() -> None:
    """Print the table; each codec runs in its own process, and a failure is a line of the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = sorted(file.stem for file in (CONF / "compressor").glob("*.yaml"))
    parser.add_argument("codecs", nargs="*", metavar="codec", help=f"of {', '.join(known)}; all by default")
    parser.add_argument("--dim", type=positive, help="entries, in one layer; cnn4's layers by default")
    parser.add_argument("--clients", type=positive, default=10, help="rows")
    parser.add_argument("--repeats", type=positive, default=7, help="measurements of each codec")
    parser.add_argument("--quick", action="store_true", help="two clients of 200,000 entries, three measurements")
    parser.add_argument("--device", type=device_here, default="cpu", help="cpu or cuda")
    parser.add_argument("--figures", type=Path, help="file to append the figures of each codec to, as a line of JSON")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    if unknown := set(options.codecs) - set(known):
        parser.error(f"codecs {', '.join(sorted(unknown))} must be among {', '.join(known)}")
    if options.quick:
        options.dim, options.clients, options.repeats = options.dim or 200_000, 2, 3
    layers = layer_sizes(options.dim)
    if options.one:
        keep_freed_memory()
        torch.set_num_threads(1)
        print(row(options.codecs[0], layers, options))
        return
    print(f"{options.clients} clients, D = {sum(layers):,}, torch {torch.__version__}, medians of {options.repeats}")
    print(f"{'codec':18s} {' '.join(TITLES)}", flush=True)
    sizes = ["--clients", str(options.clients), "--repeats", str(options.repeats)]
    sizes += ["--dim", str(options.dim)] if options.dim else []
    sizes += ["--device", options.device, *(["--figures", str(options.figures)] if options.figures else [])]
    for name in options.codecs or known:
        done = subprocess.run([sys.executable, __file__, name, "--one", *sizes], capture_output=True, text=True)
        reason = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
        print(done.stdout.rstrip() if done.returncode == 0 else f"{name:18s} skipped: {reason[0]}", flush=True)


if __name__ == "__main__":
    main()
