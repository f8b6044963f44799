"""The same bits in every run on a GPU, where some of torch's kernels add numbers in an order that is left to chance."""

from __future__ import annotations

import os

import torch

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""What cuBLAS reads when torch first uses it; with a fixed workspace it picks the same kernels in every run."""


def set_determinism(wanted: bool, device: torch.device) -> None:
    """Choose kernels that always give the same bits, or those that are fastest; for the whole process.

    Where torch knows no such kernel it warns once and takes the other. On a CPU nothing is left to chance, and nothing
    is set.
    """
    if device.type != "cuda":
        return
    if wanted:
        os.environ.setdefault(WORKSPACE, ":4096:8")
    torch.use_deterministic_algorithms(wanted, warn_only=True)
    torch.backends.cudnn.deterministic = wanted
    torch.backends.cudnn.benchmark = False  # would time kernels anew in every run, and choose by it
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
