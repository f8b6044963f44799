"""Accelerated forms, of which a wrong one leaves no trace in a run; memory that is free, and what goes to a GPU."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from fedcomp.core import accelerated, free_memory
from fedcomp.core.accelerated import DeviceLost, Form, Verdicts, close, judged_by, plainly, same_bits
from fedcomp.core.cohort import Cohort
from fedcomp.core.to_device import PAGEABLE_BYTES, to_device

FORM = Form("halves", "wholes")


def _one(value: float):
    return lambda: (torch.full((3,), value),)


def _fails():
    raise RuntimeError("no such kernel\nat 0x0")


@pytest.mark.parametrize(
    ("found", "tolerance", "said"),
    [
        (_one(2.0), 0.0, None),
        (_one(2.0 + 1e-5), 1e-4, None),
        (_one(2.0 + 2.0**-22), 0.0, "other results (the difference has norm 4.13e-07, the plain result 3.46)"),
        (_one(0.0), 1e-4, "other results (the difference has norm 3.46, the plain result 3.46)"),
        (_one(float("nan")), 1e-4, "other results (the difference has norm nan, the plain result 3.46)"),
        (lambda: (torch.full((3, 1), 2.0),), 1e-4, "torch.float32 (3, 1) instead of torch.float32 (3,)"),
        (_fails, 0.0, "an error (no such kernel)"),
    ],
)
def test_a_form_is_used_where_it_agrees(caplog, found, tolerance, said) -> None:
    assert FORM.agrees("three", found, _one(2.0), tolerance) is (said is None)
    assert FORM.refused is (said is not None)
    lines = [record.message for record in caplog.records]
    assert lines == ([] if said is None else [f"halves are not used, but wholes instead: {said}, for three"])


def test_both_compute_once_and_a_refusal_is_for_all_variants(caplog) -> None:
    asked: list[str] = []

    def noted(name: str, value: float):
        return lambda: asked.append(name) or (torch.tensor([value]),)

    for _ in range(2):
        assert FORM.agrees("a", noted("form", 1), noted("plain", 1))
    assert asked == ["plain", "form"]
    assert FORM.agrees("a", noted("form", 1), noted("plain", 1), again=True)
    assert not FORM.agrees("b", noted("form", 1), noted("plain", 2))
    assert asked == ["plain", "form"] * 3
    assert not FORM.agrees("a", noted("form", 1), noted("plain", 1), again=True)
    assert (len(asked), len(caplog.records)) == (6, 1)
    assert Form("others", "x").agrees("a", noted("form", 1), noted("plain", 1))


def test_safe_and_plainly_turn_all_off() -> None:
    with judged_by(Verdicts(safe=True)) as verdicts:
        assert FORM.refused
        assert not FORM.agrees("a", _fails, _fails)
        assert verdicts.in_words() == ("safe=true: all off",)
    with plainly():
        assert not FORM.agrees("a", _fails, _fails)
    assert not FORM.refused


def test_a_resumed_run_uses_the_same_forms() -> None:
    """A refusal holds everywhere; what agreed on one machine has to agree on another one too."""
    written: list[bytes] = []
    with judged_by(Verdicts(machine="one")) as verdicts:
        verdicts.keep = lambda: written.append(verdicts.dump())
        assert FORM.agrees("a", _one(1), _one(1))
        assert not Form("wrong", "plain").agrees("a", _one(1), _one(2))
    assert len(written) == 2
    for machine in ("one", "other"):
        later = Verdicts(machine=machine)
        later.restore(written[-1])
        with judged_by(later):
            assert Form("wrong", "plain").refused
            assert later.found.get("halves: a") == ("agrees" if machine == "one" else None)
    assert later.in_words() == (f"wrong: refused, {later.found['wrong']}",)


def test_bits_and_norms() -> None:
    nan, zero = torch.tensor([float("nan"), 1.0]), torch.tensor([0.0])
    assert same_bits(nan, nan.clone())
    assert not same_bits(zero, -zero)
    assert close(nan, nan + 1e-6, 1e-4)
    assert not close(nan, torch.tensor([0.0, 1.0]), 1e-4)
    assert same_bits(torch.tensor(3), torch.tensor(3))


@pytest.mark.parametrize("lost", [False, True])
def test_a_device_that_is_lost_is_not_fallen_back_from(monkeypatch, lost) -> None:
    """The trial of a form fails, and so does all that follows it: one line, with the remedy."""
    real = torch.ones

    def ones(*size: int, device: object = None) -> Tensor:
        if lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return real(*size)

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch, "ones", ones)
    if not lost:
        assert not FORM.agrees("a", _fails, _one(1))
        return
    with pytest.raises(DeviceLost, match=r"cannot be used .*no such kernel.*: run the same command with safe=true"):
        FORM.agrees("a", _fails, _one(1))
    assert accelerated._current.found == {}


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
