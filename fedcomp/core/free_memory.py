"""Free memory: of a GPU, of the machine, or of the control group (cgroup) that a container or a job runs in."""

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
    return min([_machine_free_bytes(), *_cgroup_free_bytes()])


def total_bytes(device: torch.device) -> int:
    """All bytes of a GPU."""
    return torch.cuda.mem_get_info(device)[1]


def _machine_free_bytes() -> int:
    try:
        fields = dict(line.split(":") for line in MEMINFO.read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cgroup_free_bytes() -> Iterator[int]:
    """Limit minus use, for the process's own group and each group that contains it; cached files count as free."""
    for folder, limit_file, usage_file, cache_field in _cgroups():
        try:
            limit = (folder / limit_file).read_text().strip()
            if limit == "max":
                continue
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            used = int((folder / usage_file).read_text()) - int(stat.get(cache_field, 0))
            yield max(0, int(limit) - used)
        except (OSError, ValueError):  # the group does not exist or is not readable
            continue


def _cgroups() -> Iterator[tuple[Path, str, str, str]]:
    """(folder, file of the limit, file of the use, field of the cached files), the innermost group first."""
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
        innermost = root / path.lstrip("/")
        for folder in (innermost, *innermost.parents):  # in a container the group may be mounted as the root
            yield (folder, *names)
            if folder == root:
                break
