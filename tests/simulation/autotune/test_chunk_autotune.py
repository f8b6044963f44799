"""How many clients at once: the faster round decides, within memory, and a run keeps the choice."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedcomp.runtime.workers import Workers
from fedcomp.simulation.autotune import chunk_autotune
from fedcomp.simulation.autotune.conv_autotune import FILE, ConvPlan, plan_convolutions
from tests.conformance import world
from tests.parts import Full, fedavg


def test_the_faster_round_decides_and_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of four clients on two workers one at a time, or two: a gain below 5 % is none, nor is what memory lacks."""
    sim = world.simulation(fedavg(), participation=Full(), chunk_size=1)
    object.__setattr__(sim, "workers", Workers(2))
    num = len(sim.shards.sizes)
    share = -(-num // 2)
    assert all(chunk_autotune._seconds(sim, size) > 0 for size in (1, share))
    seconds = {1: 1.0, share: 0.9}
    monkeypatch.setattr(chunk_autotune, "_seconds", lambda _, size: seconds[size])

    def chosen(mode: str = "measure", fixed: bool = False, path: Path | None = None) -> ConvPlan | None:
        return plan_convolutions(sim, mode, 4, num, fixed, path)

    assert chosen(path=tmp_path / FILE) == ConvPlan((), share) == ConvPlan.read(tmp_path / FILE)
    assert chosen("auto") is chosen(fixed=True) is None
    seconds[share] = 0.96
    assert chosen() == ConvPlan((), 1)
    assert chosen(path=tmp_path / FILE) == ConvPlan((), share)  # as before it was resumed
    seconds[share] = 0.1
    monkeypatch.setattr(chunk_autotune, "free_bytes", lambda device: 1000)
    assert chosen() == ConvPlan((), 1)
