"""What a run on a GPU asks of torch, and a run on a CPU does not."""

from __future__ import annotations

import os

import pytest
import torch

from fedcomp.runtime.process_settings import WORKSPACE, set_determinism


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(WORKSPACE, raising=False)
    flags, filled = torch.backends.cudnn.flags(), torch.utils.deterministic.fill_uninitialized_memory
    with flags:
        yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = filled


@pytest.mark.parametrize("wanted", [True, False])
def test_a_gpu_is_told(wanted: bool) -> None:
    set_determinism(wanted, torch.device("cuda"))
    assert torch.are_deterministic_algorithms_enabled() == wanted
    assert torch.backends.cudnn.deterministic == wanted
    assert os.environ.get(WORKSPACE) == (":4096:8" if wanted else None)
    assert not torch.utils.deterministic.fill_uninitialized_memory
    assert not wanted or torch.is_deterministic_algorithms_warn_only_enabled()


def test_a_users_own_workspace_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKSPACE, ":16:8")
    set_determinism(True, torch.device("cuda"))
    assert os.environ[WORKSPACE] == ":16:8"


def test_a_run_on_a_cpu_sets_nothing(fedcomp) -> None:
    assert fedcomp("rounds=1", "pictures=false", "deterministic=true", "device=cpu") == 0
    assert not torch.are_deterministic_algorithms_enabled()
    assert WORKSPACE not in os.environ
