"""Timings, which are measured once and kept."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from fedcomp.records.cached import cached, keep

KIND = "measured"
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
    known: Seconds | None = None if ignore_cache else cached(KIND, question)
    if known is None:
        known = measure()
        keep(KIND, question, known)
    return known


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
