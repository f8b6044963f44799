"""Warns during a run if an error-feedback memory grows far beyond the updates that it corrects."""

from __future__ import annotations

from collections.abc import Mapping

FACTOR = 10.0
"""A memory whose norm is this many times that of an update is reported."""
MEMORIES = {"memory/norm": ("update/norm", "clients"), "memory/norm_down": ("update/norm_down", "server")}
"""Length of a memory -> what to compare it with, and whose memory it is (algorithm/updates/metrics.py)."""


class MemoryGrowthMonitor:
    """Checks every evaluation's line; warns at most once for each memory."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def check(self, round_index: int, line: Mapping[str, float]) -> list[str]:
        """New warnings after `round_index` rounds."""
        found = []
        for name, (reference, owner) in MEMORIES.items():
            memory, update = line.get(name), line.get(reference)
            if name in self._said or memory is None or update is None or not memory > FACTOR * update:
                continue
            self._said.add(name)
            found.append(
                f"round {round_index}: the memory of errors of the {owner} is {memory / max(update, 1e-30):.3g} times "
                f"as long as an update ({name} {memory:.3g}, {reference} {update:.3g}). It stops growing if the codec "
                "always shrinks what is left (topk, sign, randk with scale=none); where messages have a fixed size "
                "(scale=fixed, masked_noise) and updates are larger, it never stops: raise that size, lower "
                "client.lr, or take EF21, which stays bounded (algorithm=bicompfl_cfl algorithm.ef21=true)"
            )
        return found
