"""What a run sets for its whole process: the device, kernels with the same bits in every run, a heap that keeps memory.

On a GPU some of torch's kernels add numbers in an order that differs from run to run.

glibc returns large blocks to the system as soon as they are freed. A training step frees and takes megabytes of them,
and zeroing fresh pages is 5 to 30 per cent of a convolutional network's step on a CPU (`make bench` measures both).
"""

import ctypes
import os
import re
from pathlib import Path

import torch

from fedcomp.runtime.gpu import why_no_gpu

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""What cuBLAS reads when torch first uses it; with a fixed workspace it picks the same kernels in every run."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
THRESHOLDS = (128 << 20, 32 << 20)
"""Bytes from which a block goes back to the system when it is freed: kept blocks of gigabytes, cut by smaller ones,
doubled the memory of large cohorts. Older C libraries refuse more than 32 MiB."""
TRIM_BYTES = 1 << 30
"""How much free memory at the end of the heap is kept."""
CODE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) r-xp .*/(lib[^/]+)$", re.MULTILINE)
"""A library's code in a process's memory, as Linux lists it: first address, end, file name."""
GPU_LIBRARIES = ("libcu", "libnv", "libtorch_cuda")
MADV_DONTNEED = 4


def pick_device(name: str) -> torch.device:
    """The device called `name`; auto is a GPU if there is one. Raises ValueError if there is no such device."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device={name} must be auto, cpu, cuda or cuda:<number>") from error
    if device.type not in ("cpu", "cuda") or (device.type == "cpu" and device.index is not None):
        raise ValueError(f"device={name} must be auto, cpu, cuda or cuda:<number>")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        found = why_no_gpu() or f"{torch.cuda.device_count()} GPUs are visible here"
        raise ValueError(f"device={name}: {found}; use device=cpu or auto")
    return device


def set_determinism(wanted: bool, device: torch.device) -> None:
    """Choose kernels that always give the same bits, or those that are fastest; for the whole process.

    Where torch knows no such kernel it warns once and takes the other. On a CPU all kernels are deterministic, and
    nothing is set.
    """
    if device.type != "cuda":
        return
    if wanted:
        os.environ.setdefault(WORKSPACE, ":4096:8")
    torch.use_deterministic_algorithms(wanted, warn_only=True)
    torch.backends.cudnn.deterministic = wanted
    torch.backends.cudnn.benchmark = False  # would time kernels anew in every run, and choose by it
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def keep_freed_memory() -> bool:
    """Tell glibc to reuse freed blocks from now on, all threads from one heap; False where the C library is another.

    One heap, since those that glibc makes for further threads hold 64 MiB each and send larger blocks to the system.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    kept = any(mallopt(M_MMAP_THRESHOLD, size) for size in THRESHOLDS) and bool(mallopt(M_TRIM_THRESHOLD, TRIM_BYTES))
    return bool(mallopt(M_ARENA_MAX, 1)) and kept


def release_gpu_code(libraries: tuple[str, ...] = GPU_LIBRARIES) -> None:
    """Give back the pages of code that loading CUDA's libraries has touched: 85 MiB, of which a run on a CPU uses none.

    They are unchanged pages of files, so Linux reads those again that are called nevertheless; elsewhere nothing
    happens.
    """
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return
    madvise = ctypes.CDLL(None).madvise
    for first, end, name in CODE.findall(maps.read_text()):
        if name.startswith(libraries):
            start = int(first, 16)
            madvise(ctypes.c_void_p(start), ctypes.c_size_t(int(end, 16) - start), MADV_DONTNEED)
