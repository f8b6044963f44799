"""What a user is told of a GPU that torch cannot compute on (each is made up), and what a run on one asks of torch."""

import os
import sys
from pathlib import Path

import pytest
import torch

from fedcomp.model.precision import set_tf32
from fedcomp.provenance import machine
from fedcomp.runtime import gpu, process_settings
from fedcomp.runtime.gpu import check_gpu, why_no_gpu, why_unusable
from fedcomp.runtime.process_settings import WORKSPACE, release_gpu_code, set_determinism
from tests.raising import raising
from tests.refused import one_line_error

CUDA, CPU = torch.device("cuda"), torch.device("cpu")
OLD = "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver"
MISSING = "CUDA error: no kernel image is available for execution on the device\nCompile with ..."
FULL = "CUDA out of memory. Tried to allocate 2.00 MiB."


def _fails(monkeypatch, error: Exception) -> None:
    monkeypatch.setattr(torch, "arange", raising(error))
    monkeypatch.setattr(torch, "zeros", raising(error))


@pytest.mark.parametrize(
    ("error", "reason", "remedy"),
    [
        (RuntimeError(OLD), "a newer NVIDIA driver than this one, which has at most CUDA 11.4", "whl/cu114"),
        (RuntimeError(MISSING), r"none for Tesla V100 \(sm_70\)", "CUDA 12.6 .*whl/cu126"),
        (torch.OutOfMemoryError(FULL), "memory is full", r"nvidia-smi .*device=cuda:1"),
        (RuntimeError("CUDA error: uncorrectable ECC error\nmore"), "uncorrectable ECC error;", "or take device=cpu"),
        (AssertionError("Torch not compiled with CUDA enabled"), "not compiled with CUDA", "or take device=cpu"),
    ],
)
def test_a_gpu_that_cannot_be_used_is_one_line_with_a_remedy(monkeypatch, error, reason, remedy) -> None:
    _fails(monkeypatch, error)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla V100")
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_90"])
    with one_line_error(f"device=cuda: torch cannot compute on cuda: .*{reason}.*{remedy}"):
        check_gpu("cuda", CUDA)
    check_gpu("cpu", CPU)


def test_a_kernel_that_computes_something_else_is_noticed(monkeypatch) -> None:
    real = torch.arange
    for factor, works in ((1.0, True), (0.0, False)):
        made = lambda *given, device, factor=factor, **kind: factor * real(*given, **kind)  # noqa: E731
        monkeypatch.setattr(torch, "arange", made)
        assert (why_unusable(CUDA) is None) is works


@pytest.mark.parametrize("driver", [True, False])
@pytest.mark.parametrize(("error", "told"), [(OLD, True), ("No CUDA GPUs are available", False)])
def test_auto_computes_on_the_cpu_with_a_line_where_a_driver_is(monkeypatch, tmp_path, driver, error, told) -> None:
    (tmp_path / "there").touch()
    monkeypatch.setattr(gpu, "NVIDIA", tmp_path / ("there" if driver else "missing"))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    _fails(monkeypatch, RuntimeError(error))
    assert (why_no_gpu() is not None) is (driver and told)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert ("built without CUDA" in (why_no_gpu() or "")) is driver


def test_a_run_says_where_it_computes_and_why_not_on_the_gpu(fedcomp, monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr("fedcomp.training.build.why_no_gpu", lambda: "its driver is too old")
    assert fedcomp("rounds=1", "device=auto", "threads=1") == 0
    said = capsys.readouterr().err
    assert "device=auto computes on the CPU: its driver is too old\n" in said
    assert f"on cpu: {machine.processor(CPU)}, 1 thread, fp32, accelerated forms\n" in said
    assert fedcomp("rounds=1", "device=cpu", "safe=true") == 0
    said = capsys.readouterr().err
    assert "computes on the CPU" not in said
    assert "no accelerated forms (safe=true)" in said
    monkeypatch.setattr(process_settings, "why_no_gpu", lambda: "its driver is too old")
    assert fedcomp("rounds=1", "device=cuda") != 0
    assert "device=cuda: its driver is too old; use device=cpu or auto" in capsys.readouterr().err


def test_versions_of_what_computes_on_a_gpu(monkeypatch, tmp_path) -> None:
    assert machine.device_versions(CPU) == {}
    proc = tmp_path / "version"
    monkeypatch.setattr(machine, "DRIVER", proc)
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91002)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 27, 3))
    assert machine.device_versions(CUDA) == {"cudnn": "91002", "nccl": "2.27.3"}
    for text in ("Kernel Module  570.86.15  Thu", "Open Kernel Module for x86_64  570.86.15  Release"):
        proc.write_text(f"NVRM version: NVIDIA UNIX x86_64 {text} Build")
        assert machine.device_versions(CUDA)["driver"] == "570.86.15"
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert machine.device_versions(CUDA)["rocm"] == "6.4"


def test_precisions_ask_what_the_device_can(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 4))
    says = "precision=bf16: Tesla T4 has no products of bfloat16 .*: take precision=fp32"
    with pytest.raises(ValueError, match=says):
        set_tf32("bf16", CUDA)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    with pytest.raises(ValueError, match="precision=tf32 needs an NVIDIA GPU"):
        set_tf32("tf32", CUDA)
    assert Path(gpu.NVIDIA).is_absolute()


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(WORKSPACE, raising=False)
    """Those that a run changes are afterwards as before."""
    flags, filled = torch.backends.cudnn.flags(), torch.utils.deterministic.fill_uninitialized_memory
    with flags:
        yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = filled


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("wanted", [True, False])
def test_a_gpu_is_told(wanted: bool) -> None:
    set_determinism(wanted, torch.device("cuda"))
    assert torch.are_deterministic_algorithms_enabled() == wanted
    assert torch.backends.cudnn.deterministic == wanted
    assert os.environ.get(WORKSPACE) == (":4096:8" if wanted else None)
    assert not torch.utils.deterministic.fill_uninitialized_memory
    assert not wanted or torch.is_deterministic_algorithms_warn_only_enabled()


@pytest.mark.usefixtures("settings")
def test_a_users_own_workspace_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKSPACE, ":16:8")
    set_determinism(True, torch.device("cuda"))
    assert os.environ[WORKSPACE] == ":16:8"


def test_a_run_on_a_cpu_sets_nothing(fedcomp, settings) -> None:
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
