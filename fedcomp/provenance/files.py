"""Fingerprints of files by their content. What takes long to read is read once, while size and times stay the same."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from fedcomp.records.atomic_write import write_atomically
from fedcomp.records.provenance import Fingerprint

MOST_NAMED = 64
"""Of more files than these, each folder has one fingerprint."""
LARGE_BYTES, MANY_FILES = 8 << 20, 500
"""What is smaller than both is read in milliseconds, and so is not worth remembering."""
SETTLED_SECONDS = 2.0
"""A file system's clock may be so coarse: what was written later may be written again under the same time."""


def fingerprints(files: Sequence[Path]) -> dict[str, Fingerprint]:
    """Of each file that is there, named below the folder that holds all; of many files, of each folder.

    Raises:
        ValueError: a file cannot be read.
    """
    found = sorted({path.absolute() for path in files if path.is_file()})
    if not found:
        return {}
    try:
        base = os.path.commonpath([path.parent for path in found])
        names = [os.path.relpath(path, base) for path in found]
        stats = [path.stat() for path in found]
        worth = sum(stat.st_size for stat in stats) >= LARGE_BYTES or len(found) >= MANY_FILES
        if not worth:
            return _read(found, names)
        listing = _listing(names, stats)
        kept = _remembered(base, names, listing)
        if kept is not None:
            return kept
        settled = time.time() - max(max(stat.st_mtime, stat.st_ctime) for stat in stats) > SETTLED_SECONDS
        parts = _read(found, names)
    except OSError as error:
        raise ValueError(f"cannot read {error.filename}: {error.strerror}") from error
    if settled:
        _remember(base, names, listing, parts)
    return parts


def digest(*pieces: bytes | memoryview) -> str:
    """Of the pieces in their order, 32 hex digits."""
    out = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        out.update(piece)
    return out.hexdigest()


def _read(files: Sequence[Path], names: Sequence[str]) -> dict[str, Fingerprint]:
    each = {}
    for path, name in zip(files, names):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
            each[name] = Fingerprint(content, 1, file.tell())
    if len(each) <= MOST_NAMED:
        return each
    folders: dict[str, dict[str, Fingerprint]] = {}
    for name, part in each.items():
        folders.setdefault(os.path.dirname(name) or ".", {})[os.path.basename(name)] = part
    return {name: _together(inside) for name, inside in folders.items()}


def _together(parts: Mapping[str, Fingerprint]) -> Fingerprint:
    words = "".join(f"{name}\0{part.digest}\n" for name, part in sorted(parts.items()))
    return Fingerprint(digest(words.encode()), len(parts), sum(part.bytes for part in parts.values()))


def _listing(names: Sequence[str], stats: Sequence[os.stat_result]) -> str:
    """Changes when a file is added, removed, renamed or written to, also if its time is then set back."""
    lines = (f"{name}\0{one.st_size}\0{one.st_mtime_ns}\0{one.st_ctime_ns}\n" for name, one in zip(names, stats))
    return digest("".join(lines).encode())


def _store(base: str, names: Sequence[str]) -> Path | None:
    """Where the fingerprints of a folder's files are remembered; None where there is no home."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if not os.path.isabs(root):
        return None
    return Path(root, "fedcomp", "fingerprints", f"{digest(base.encode(), names[0].encode())}.json")


def _remembered(base: str, names: Sequence[str], listing: str) -> dict[str, Fingerprint] | None:
    store = _store(base, names)
    if store is None:
        return None
    try:
        content = json.loads(store.read_bytes())
        if content["listing"] == listing:
            return {name: Fingerprint(**part) for name, part in content["parts"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass  # none yet, or not ours: read again
    return None


def _remember(base: str, names: Sequence[str], listing: str, parts: Mapping[str, Fingerprint]) -> None:
    store = _store(base, names)
    if store is None:
        return
    content = {"base": base, "listing": listing, "parts": {name: asdict(part) for name, part in parts.items()}}
    with contextlib.suppress(OSError, ValueError):  # a home that cannot be written: read again next time
        store.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(store, json.dumps(content).encode())
