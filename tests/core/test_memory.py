"""Free memory is that of the narrowest control group around the process; large arrays go to a GPU by pinned memory."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from fedcomp.core import free_memory
from fedcomp.core.cohort import Cohort
from fedcomp.core.to_device import PAGEABLE_BYTES, to_device

CPU = torch.device("cpu")
MIB = 1 << 20


def _group(folder: Path, version: int, limit: str, used: int, cached: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    for name, value in zip(names, (limit, used)):
        (folder / name).write_text(f"{value}\n")
    stat = "inactive_file" if version == 2 else "total_inactive_file"
    (folder / "memory.stat").write_text(f"anon 5\n{stat} {cached}\n")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(free_memory, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(free_memory, "OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(free_memory, "MEMINFO", tmp_path / "meminfo")
    (tmp_path / "meminfo").write_text("MemTotal: 900 kB\nMemAvailable:   1048576 kB\n")
    (tmp_path / "own").write_text("")
    return tmp_path


def test_without_groups_it_is_what_the_machine_has(own: Path) -> None:
    assert free_memory.free_bytes(CPU) == 1024 * MIB
    (own / "own").unlink()
    assert free_memory.free_bytes(CPU) == 1024 * MIB


def test_version_2(own: Path) -> None:
    """The limit may be that of a group further out; cached files count as free."""
    (own / "own").write_text("0::/job/step\n")
    _group(own / "cgroup" / "job" / "step", 2, "max", 70 * MIB, 0)
    _group(own / "cgroup" / "job", 2, str(100 * MIB), 80 * MIB, 30 * MIB)
    assert free_memory.free_bytes(CPU) == 50 * MIB


def test_version_1(own: Path) -> None:
    (own / "own").write_text("5:cpu,cpuacct:/\n4:memory:/docker/abc\n0::/\n")
    unlimited = str(2**63 - 4096)
    _group(own / "cgroup" / "memory", 1, unlimited, 0, 0)
    assert free_memory.free_bytes(CPU) == 1024 * MIB
    _group(own / "cgroup" / "memory" / "docker" / "abc", 1, str(64 * MIB), 65 * MIB, 0)
    assert free_memory.free_bytes(CPU) == 0


def test_in_a_container_the_group_may_be_mounted_as_the_root(own: Path) -> None:
    (own / "own").write_text("4:memory:/docker/abc\n")
    _group(own / "cgroup" / "memory", 1, str(64 * MIB), 4 * MIB, 2 * MIB)
    assert free_memory.free_bytes(CPU) == 62 * MIB


def test_large_arrays_are_pinned_for_a_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[int] = []
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: pinned.append(tensor.nbytes) or tensor)
    sizes = PAGEABLE_BYTES, PAGEABLE_BYTES + 8
    for size in sizes:
        array = np.arange(size // 8)
        assert np.shares_memory(to_device(array, torch.device("cpu")).numpy(), array)
        assert pinned == []
    with FakeTensorMode(allow_non_fake_inputs=True):
        found = [to_device(np.arange(size // 8), torch.device("cuda")) for size in sizes]
    assert all(one.is_cuda for one in found)
    assert pinned == [PAGEABLE_BYTES + 8]


def test_a_large_cohort_is_copied_from_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[int] = []
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: pinned.append(tensor.nbytes) or tensor)
    cohort = Cohort.of(range(10_000), torch.ones(10_000))
    with FakeTensorMode(allow_non_fake_inputs=True):
        moved = cohort.to(torch.device("cuda"))
    assert moved.ids.is_cuda
    assert moved.weight.is_cuda
    assert pinned == [80_000]  # 40,000 bytes of weights go at once
