"""Shared by all tests: one thread a test process, and the command line called in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hydra.core.global_hydra import GlobalHydra

torch.set_num_threads(1)


@pytest.fixture
def fedcomp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`fedcomp("rounds=2", ...)` runs the command line with outputs in `tmp_path`; returns the exit status."""
    from fedcomp.cli import main

    def call(*arguments: str) -> int:
        GlobalHydra.instance().clear()
        outputs = [] if any("output_root" in argument for argument in arguments) else [f"output_root={tmp_path}"]
        monkeypatch.setattr(sys, "argv", ["fedcomp", *arguments, *outputs])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return call
