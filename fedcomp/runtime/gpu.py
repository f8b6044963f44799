"""Whether torch can compute on a GPU here; if not, why and what to do, in one line."""

import re
from pathlib import Path

import torch

from fedcomp.core.first_line import first_line

NVIDIA = Path("/dev/nvidiactl")
"""There is such a file where NVIDIA's driver is."""


def why_unusable(device: torch.device) -> str | None:
    """Runs a kernel and copies its result back. None: the GPU computes; else the reason, with a remedy."""
    try:
        found = (torch.arange(1, 5, dtype=torch.float32, device=device) * 2).tolist()
    except (RuntimeError, AssertionError) as error:
        return _explained(error, device)
    return (
        None if found == [2.0, 4.0, 6.0, 8.0] else f"2 x (1, 2, 3, 4) is {found} there: see the machine's log (dmesg)"
    )


def check_gpu(name: str, device: torch.device) -> None:
    """Raise ValueError unless torch computes on the device, which `device=<name>` means; nothing is asked of a CPU."""
    if device.type == "cuda" and (reason := why_unusable(device)) is not None:
        raise ValueError(f"device={name}: torch cannot compute on {device}: {reason}; or take device=cpu")


def why_no_gpu() -> str | None:
    """Why torch finds no GPU although the machine has one; None: it finds one, or there is none to find."""
    if torch.cuda.is_available():
        return None
    if not NVIDIA.exists():
        return None
    if torch.version.cuda is None:
        return f"torch {torch.__version__} was built without CUDA: install a wheel with it (pytorch.org, Get started)"
    try:
        torch.zeros(1, device="cuda")
    except (RuntimeError, AssertionError) as error:
        reason = _explained(error, torch.device("cuda"))
        return None if re.search(r"No CUDA GPUs|no CUDA-capable device", reason) else reason  # hidden on purpose
    return None


def _explained(error: BaseException, device: torch.device) -> str:
    text = str(error)
    if "driver" in text and "too old" in text:
        found = re.search(r"found version (\d+)", text)
        most = f", which has at most CUDA {int(found[1]) // 1000}.{int(found[1]) % 1000 // 10}" if found else ""
        wheel = f"cu{int(found[1]) // 1000}{int(found[1]) % 1000 // 10}" if found else "cu126"
        return (
            f"torch {torch.__version__} needs a newer NVIDIA driver than this one{most}: update the driver, or install "
            f"torch for it (pip install torch --index-url https://download.pytorch.org/whl/{wheel})"
        )
    if "no kernel image" in text:
        major, minor = torch.cuda.get_device_capability(device)
        return (
            f"torch {torch.__version__} has kernels for {', '.join(torch.cuda.get_arch_list())}, but none for "
            f"{torch.cuda.get_device_name(device)} (sm_{major}{minor}): install a wheel that has them (those for CUDA "
            "12.6 have sm_50 to sm_90: pip install torch --index-url https://download.pytorch.org/whl/cu126)"
        )
    if isinstance(error, torch.OutOfMemoryError) or "out of memory" in text:
        return (
            "its memory is full, so another process uses it (nvidia-smi shows which): wait for that one, or take "
            "another GPU (device=cuda:1)"
        )
    return first_line(error)
