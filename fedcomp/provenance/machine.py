"""Where a session runs and with what: versions, commits, host, processor."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
import socket
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import torch

from fedcomp import __version__
from fedcomp.provenance.files import digest
from fedcomp.records.provenance import Commit

PACKAGES = ("torch", "torchvision", "numpy", "numba", "triton", "pillow", "scikit-learn")
"""What computes, decodes pictures or holds data."""
GIT_SECONDS = 10.0
ROOT = Path(__file__).resolve().parents[1]


@functools.cache
def versions() -> dict[str, str]:
    """Of fedcomp, Python and the packages that compute; fedcomp's has a digest of its source behind a plus sign."""
    found = {"fedcomp": f"{__version__}+{_source()}", "python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    if torch.version.cuda is not None:
        found["cuda"] = torch.version.cuda
    return found


def commits(files: Iterable[Path]) -> tuple[Commit, ...]:
    """Of the repositories that hold fedcomp and these files; none where there is no git."""
    roots = {_repository(path.resolve().parent) for path in [ROOT / "__init__.py", *files]}
    found = (_commit(root) for root in sorted(root for root in roots if root is not None))
    return tuple(one for one in found if one is not None)


def processor(device: torch.device) -> str:
    """A GPU's name; a CPU's, with the instructions that torch uses on it, since these decide how sums round."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_cpu()}, {torch.backends.cpu.get_cpu_capability()}"


def host() -> str:
    """This machine's name."""
    return socket.gethostname()


def job() -> str | None:
    """Slurm's name of the job that this process runs in; of an array `<array>_<task>`."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID")


def now() -> str:
    """ISO 8601, in UTC."""
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


def _repository(folder: Path) -> Path | None:
    return next((root for root in (folder, *folder.parents) if (root / ".git").exists()), None)


@functools.cache
def _commit(root: Path) -> Commit | None:
    head = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return None if head is None or changed is None else Commit(str(root), head, not changed)


def _git(root: Path, *arguments: str) -> str | None:
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS, env=environment)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
