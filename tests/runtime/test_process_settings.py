"""What a run on a GPU asks of torch, and a run on a CPU does not."""

import os
import sys
from pathlib import Path

import pytest
import torch

from fedcomp.runtime.process_settings import WORKSPACE, release_gpu_code, set_determinism


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


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of a process")
def test_code_that_was_given_back_is_read_again_when_it_is_called() -> None:
    def code_kib() -> int:
        kib, inside = 0, False
        for line in Path("/proc/self/smaps").read_text().splitlines():
            if "-" in line.split()[0]:
                inside = " r-xp " in line and line.endswith("/libtorch_python.so")
            kib += int(line.split()[1]) if inside and line.startswith("Rss:") else 0
        return kib

    before = code_kib()
    release_gpu_code(("libtorch_python",))
    assert code_kib() < before / 2
    assert torch.ones(3).sum() == 3
