"""The device that `device=auto` names, told by NVIDIA's driver where torch is not imported yet: that takes seconds."""

import ctypes
import functools
import re
import sys
from importlib.util import find_spec
from pathlib import Path

from fedcomp.runtime.importing import without_collection

ROCM = Path("/dev/kfd")
"""There is such a file where AMD's driver is: torch may call its GPUs cuda, too."""
NO_DEVICE = 100
"""What cuInit returns where there is a driver but no GPU, or where CUDA_VISIBLE_DEVICES hides all of them."""


def device_name(name: str) -> str:
    """As `str(pick_device(name))`. Imports torch only where the driver cannot say it, or there is no such device."""
    known = device_without_torch(name)
    if known is None:
        with without_collection():
            from fedcomp.runtime.process_settings import pick_device

        known = str(pick_device(name))
    return known


def device_without_torch(name: str) -> str | None:
    """As `str(pick_device(name))`; None: only torch can say, such as that there is no such device."""
    if name == "cpu":
        return name
    if "torch" in sys.modules or ROCM.exists():
        return None
    gpus = _visible_gpus()
    if gpus is None:
        return None
    if name == "auto":
        return "cuda" if gpus else "cpu"
    match = re.fullmatch(r"cuda(?::(0|[1-9]\d*))?", name)
    return name if match is not None and int(match[1] or 0) < gpus else None


@functools.cache
def _visible_gpus() -> int | None:
    """How many GPUs torch will find here; None: only torch can say."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    number, version, started = ctypes.c_int(), ctypes.c_int(), driver.cuInit(0)
    if started == NO_DEVICE:
        return 0
    if started or driver.cuDeviceGetCount(ctypes.byref(number)) or driver.cuDriverGetVersion(ctypes.byref(version)):
        return None
    wanted = _cuda_of_torch()
    return number.value if wanted is not None and version.value // 1000 >= wanted else None


def _cuda_of_torch() -> int | None:
    """The major version of CUDA that torch was built with, which a driver must have at least; None: without CUDA."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = Path(spec.origin).with_name("version.py").read_text()
    except OSError:
        return None
    match = re.search(r"^cuda\b.*= *'(\d+)", text, re.MULTILINE)
    return int(match[1]) if match else None
