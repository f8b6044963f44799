"""Fingerprints of files by their content; those of large data are cached until a file's size or time changes."""

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from fedcomp.records.cached import cached, keep
from fedcomp.records.provenance import Fingerprint

KIND = "fingerprints"
MAX_FILES = 64
"""With more files, each folder has one fingerprint."""
LARGE_BYTES, MANY_FILES = 8 << 20, 500
"""Data below both limits are read in milliseconds, so their fingerprints are not cached."""
CLOCK_SECONDS = 2.0
"""Resolution of a file system's clock: a file that is younger may be written again without a new time."""


def fingerprints(files: Sequence[Path]) -> dict[str, Fingerprint]:
    """Fingerprints of the existing files, by path below their common folder; with many files, of each folder.

    Raises ValueError: a file cannot be read.
    """
    existing = sorted({path.absolute() for path in files if path.is_file()})
    if not existing:
        return {}
    try:
        base = os.path.commonpath([path.parent for path in existing])
        names = [os.path.relpath(path, base) for path in existing]
        stats = [path.stat() for path in existing]
        is_large = sum(stat.st_size for stat in stats) >= LARGE_BYTES or len(existing) >= MANY_FILES
        if not is_large:
            return _read(existing, names)
        times = (f"{name}\0{one.st_size}\0{one.st_mtime_ns}\0{one.st_ctime_ns}\n" for name, one in zip(names, stats))
        listing = digest("".join(times).encode())  # changes with every write, even if the mtime is set back
        known = cached(KIND, [base, names[0]])
        if known is not None and known["listing"] == listing:
            return {name: Fingerprint(**part) for name, part in known["parts"].items()}
        can_cache = time.time() - max(max(stat.st_mtime, stat.st_ctime) for stat in stats) > CLOCK_SECONDS
        parts = _read(existing, names)
    except OSError as error:
        raise ValueError(f"cannot read {error.filename}: {error.strerror}") from error
    if can_cache:
        kept = {"listing": listing, "parts": {name: asdict(part) for name, part in parts.items()}}
        keep(KIND, [base, names[0]], kept)
    return parts


def digest(*pieces: bytes | memoryview) -> str:
    """BLAKE2b of the concatenated pieces, 32 hex digits."""
    hasher = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        hasher.update(piece)
    return hasher.hexdigest()


def _read(files: Sequence[Path], names: Sequence[str]) -> dict[str, Fingerprint]:
    by_file = {}
    for path, name in zip(files, names):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
            by_file[name] = Fingerprint(content, 1, file.tell())
    if len(by_file) <= MAX_FILES:
        return by_file
    folders: dict[str, dict[str, Fingerprint]] = {}
    for name, part in by_file.items():
        folders.setdefault(os.path.dirname(name) or ".", {})[os.path.basename(name)] = part
    return {name: _combined(parts) for name, parts in folders.items()}


def _combined(parts: Mapping[str, Fingerprint]) -> Fingerprint:
    text = "".join(f"{name}\0{part.digest}\n" for name, part in sorted(parts.items()))
    return Fingerprint(digest(text.encode()), len(parts), sum(part.bytes for part in parts.values()))
