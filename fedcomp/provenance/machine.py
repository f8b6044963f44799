"""A session's machine and software: host, processor, versions, commits."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fedcomp.core.version import __version__
from fedcomp.provenance.files import digest
from fedcomp.records.provenance import Commit

if TYPE_CHECKING:  # it takes seconds to import
    import torch

PACKAGES = ("torch", "torchvision", "numpy", "numba", "triton", "pillow", "scikit-learn", "transformers", "tokenizers")
"""Packages that affect results: they compute, decode pictures, make tokens or contain data."""
GIT_SECONDS = 10.0
DRIVER = Path("/proc/driver/nvidia/version")
GIB = 2.0**30
ROOT = Path(__file__).resolve().parents[1]


@functools.cache
def versions() -> dict[str, str]:
    """Versions of fedcomp, Python and `PACKAGES`; fedcomp's ends with a plus sign and a digest of its source."""
    import torch

    by_name = {"fedcomp": f"{__version__}+{_source()}", "python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            by_name[package] = importlib.metadata.version(package)
    if torch.version.cuda is not None:
        by_name["cuda"] = torch.version.cuda
    return by_name


def commits(files: Iterable[Path]) -> tuple[Commit, ...]:
    """Commits of the repositories of fedcomp and of these files; () without git."""
    parents = (path.resolve().parents for path in [ROOT / "__init__.py", *files])
    roots = {next((root for root in above if (root / ".git").exists()), None) for above in parents}
    each = (_commit(root) for root in sorted(root for root in roots if root is not None))
    return tuple(one for one in each if one is not None)


def processor(device: torch.device) -> str:
    """A GPU's name; or a CPU's, with the vector instructions that torch uses, since these affect rounding."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_cpu()}, {torch.backends.cpu.get_cpu_capability()}"


def gpu_in_words(device: torch.device) -> str:
    """Name, memory and driver of a GPU."""
    import torch

    free, total = torch.cuda.mem_get_info(device)
    found = device_versions(device)
    driver = f", driver {found['driver']}" if "driver" in found else ""
    return f"{torch.cuda.get_device_name(device)}, {free / GIB:.1f} of {total / GIB:.1f} GiB free{driver}"


def device_versions(device: torch.device) -> dict[str, str]:
    """Versions of what computes on a GPU besides torch: driver, cuDNN, NCCL, ROCm; {} for a CPU."""
    import torch

    if device.type != "cuda":
        return {}
    found: dict[str, str] = {}
    if (driver := _driver()) is not None:
        found["driver"] = driver
    if torch.backends.cudnn.is_available():
        found["cudnn"] = str(torch.backends.cudnn.version())
    if torch.distributed.is_available() and torch.distributed.is_nccl_available():
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    if torch.version.hip is not None:
        found["rocm"] = torch.version.hip
    return found


def _driver() -> str | None:
    """NVIDIA's, as its kernel module says."""
    try:
        found = re.search(r"Module\s+(?:for \S+\s+)?(\d[\d.]+)", DRIVER.read_text())
    except OSError:
        return None
    return None if found is None else found[1]


def job() -> str | None:
    """Slurm's id of this process's job; `<array>_<task>` in an array; None outside Slurm."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID")


def now() -> str:
    """The current time in UTC, in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _source() -> str:
    files = sorted(ROOT.rglob("*.py"))
    return digest(*(piece for file in files for piece in (str(file.relative_to(ROOT)).encode(), file.read_bytes())))[:8]


@functools.cache
def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.processor() or platform.machine()


@functools.cache
def _commit(root: Path) -> Commit | None:
    head = _git(root, "rev-parse", "HEAD")
    # No page changes a result, and pages of results are written while their runs go on.
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude,top)docs")
    return None if head is None or changed is None else Commit(str(root), head, not changed)


def _git(root: Path, *arguments: str) -> str | None:
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS, env=environment)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
