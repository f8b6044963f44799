"""How much memory can still be allocated: of the machine, or of the control group that a container or a job runs in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import torch

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS, MEMINFO = Path("/proc/self/cgroup"), Path("/proc/meminfo")


def free_bytes(device: torch.device) -> int:
    """Bytes that can still be allocated on `device`."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return min([_free_of_machine(), *_free_of_groups()])


def _free_of_machine() -> int:
    try:
        fields = dict(line.split(":") for line in MEMINFO.read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _free_of_groups() -> Iterator[int]:
    """What each limit leaves, of the process's own group and those around it; cached files count as free."""
    for folder, limit, used, cache in _groups():
        try:
            most = (folder / limit).read_text().strip()
            if most == "max":
                continue
            counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            held = int((folder / used).read_text()) - int(counts.get(cache, 0))
            yield max(0, int(most) - held)
        except (OSError, ValueError):  # no such group, or none that may be looked at
            continue


def _groups() -> Iterator[tuple[Path, str, str, str]]:
    """Folders of memory groups, inner ones first, with the names of limit, use and cached files in them."""
    try:
        lines = OWN_CGROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root, names = CGROUPS, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root, names = CGROUPS / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        own = root / path.lstrip("/")
        for folder in (own, *own.parents):  # in a container the group may be mounted as the root
            yield (folder, *names)
            if folder == root:
                break
