"""Timings that are measured once, and cached as small files under $XDG_CACHE_HOME/fedcomp (default ~/.cache)."""

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from fedcomp.core import folders
from fedcomp.records.atomic_write import write_atomically

REPEATS = 5
GPU_RUNS = 20
"""Runs that are timed together on a GPU: launching and waiting for a single one takes 20 microseconds."""
Seconds = dict[str, float]


def cached_timings(question: Mapping[str, Any], measure: Callable[[], Seconds], ignore_cache: bool = False) -> Seconds:
    """Seconds of each candidate: cached, or measured now and written to the cache if its folder is writable.

    Args:
        question: what is measured, with everything that the answer depends on; plain values.
        measure: makes the measurement. ignore_cache: measure even if the answer is cached.
    """
    text = json.dumps(question, sort_keys=True)
    path = cache_folder() / f"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}.json"
    known = None if ignore_cache else _read(path, text)
    if known is not None:
        return known
    seconds = measure()
    with contextlib.suppress(ValueError, OSError):  # a folder that cannot be written: measured in every run
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps({"question": text, "seconds": seconds}).encode())
    return seconds


def cache_folder() -> Path:
    """The folder of the cache."""
    return folders.cache_folder() / "measured"


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """The shortest of REPEATS measurements of `work`, after a warm-up; on a GPU each is the mean of GPU_RUNS runs."""
    best, runs = float("inf"), GPU_RUNS if device.type == "cuda" else 1
    for turn in range(REPEATS + 1):
        wait_for(device)
        began = time.perf_counter()
        for _ in range(runs):
            work()
        wait_for(device)
        if turn:
            best = min(best, (time.perf_counter() - began) / runs)
    return best


def wait_for(device: torch.device) -> None:
    """Returns when a GPU has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _read(path: Path, text: str) -> Seconds | None:
    try:
        content = json.loads(path.read_text())
        found = {str(name): float(value) for name, value in content["seconds"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return found if content["question"] == text else None
