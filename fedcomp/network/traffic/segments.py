"""Segments of a running run's `traffic.npz`: each checkpoint closes one, the end joins them.

A segment `traffic-<first>-<last>.npz` has the rounds first to last, counted from 1. A run that resumes drops what is
later than its checkpoint. The joined file depends on the rounds alone, not on where the checkpoints were.
"""

import re
from pathlib import Path

from fedcomp.network.traffic.file import FILE, Traffic, joined, load, save
from fedcomp.records.atomic_write import explained

NAME = re.compile(r"traffic-(\d+)-(\d+)\.npz")


def write_segment(folder: Path, traffic: Traffic, last: int) -> None:
    """Write the rounds up to `last`, if there are any."""
    if traffic.num_rounds:
        save(folder / f"traffic-{last - traffic.num_rounds + 1:07}-{last:07}.npz", traffic)


def resume(folder: Path, done: int) -> Traffic | None:
    """The first `done` rounds, None for 0; whatever is later is removed.

    Raises ValueError: some of these rounds are missing or damaged.
    """
    whole = folder / FILE
    if done and whole.exists():  # a finished run that lost a later file
        write_segment(folder, load(whole).first(done), done)
    whole.unlink(missing_ok=True)
    for path, _, last in _segments(folder):
        if last > done:
            path.unlink()
    if not done:
        return None
    found = _read(folder)
    if found is None or found.num_rounds < done:
        raise ValueError(
            f"{folder} has no traffic of round {1 if found is None else found.num_rounds + 1}, but the run was at "
            f"round {done}: put its {FILE.replace('.', '-*.')} back, or start anew with overwrite=true"
        )
    return found


def join(folder: Path) -> None:
    """Write `traffic.npz`, and remove the segments. Raises ValueError if one is missing; then nothing is removed."""
    found, segments = _read(folder), _segments(folder)
    num_joined = 0 if found is None else found.num_rounds
    if segments and num_joined < segments[-1][2]:
        raise ValueError(
            f"{folder} has no traffic of round {num_joined + 1}, but of later rounds: put the missing "
            f"{FILE.replace('.', '-*.')} back, or start anew with overwrite=true"
        )
    if found is not None:
        save(folder / FILE, found)
    for path, _, _ in segments:
        path.unlink()


def read_traffic(folder: Path) -> Traffic:
    """What a run has sent so far. Raises ValueError: it recorded nothing."""
    found = load(folder / FILE) if (folder / FILE).exists() else _read(folder)
    if found is None:
        raise ValueError(
            f"{folder} has no {FILE}, from which times follow: only runs with a network or with record_traffic=true "
            "write it; run it again with one of them"
        )
    return found


def _read(folder: Path) -> Traffic | None:
    """The rounds of all segments that join without a gap."""
    parts: list[Traffic] = []
    done = 0
    for path, first, last in _segments(folder):
        if first == done + 1:
            parts.append(load(path))
            done = last
    return joined(parts) if parts else None


def _segments(folder: Path) -> list[tuple[Path, int, int]]:
    """(path, first round, last round), in their order."""
    with explained(folder):
        matches = [(path, NAME.fullmatch(path.name)) for path in sorted(folder.glob("traffic-*.npz"))]
    return [(path, int(match[1]), int(match[2])) for path, match in matches if match is not None]
