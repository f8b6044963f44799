"""A short fingerprint of a file's contents, by which a small file that a run reads belongs to its identity."""

import hashlib
from pathlib import Path


def fingerprint(path: str) -> str | None:
    """16 hex digits of BLAKE2b; None: the file cannot be read, which who reads it reports."""
    try:
        content = Path(path).read_bytes()
    except OSError:
        return None
    return hashlib.blake2b(content, digest_size=8).hexdigest()
