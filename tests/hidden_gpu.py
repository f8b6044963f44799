"""Hides the machine's GPUs from a test and from the processes that it starts."""

import pytest
import torch


def hide_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch find no GPU: CUDA reads the environment only once, so this process is told in other words."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
