"""W&B's own file of a run, `run-<id>.wandb`: read, and mended, as far as it was written.

The file is a LevelDB log: 7 bytes of file header, then blocks of 32 KiB that hold records, each with a header of CRC
(4 bytes), length (2, little endian) and type (1: 1 whole, 2 first, 3 middle, 4 last part). A record is a protobuf.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

BLOCK, HEADER = 32768, 7
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def records(path: Path) -> Iterator[bytes]:
    """The complete records of the file, as bytes of protobuf; stops where a killed writer stopped."""
    return (record for _, record in ends(path))


def ends(path: Path) -> Iterator[tuple[int, bytes]]:
    """Where each complete record of the file ends, and the record."""
    return _scan(path.read_bytes())


def cut_torn_end(path: Path) -> None:
    """Cut off what a killed writer left half written: `wandb sync` refuses it, and every later piece of the run."""
    data = path.read_bytes()
    end = max((end for end, _ in _scan(data)), default=HEADER)
    if end < len(data):
        os.truncate(path, end)


def _scan(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Where each complete record ends, and the record."""
    at, parts = HEADER, b""
    while at + HEADER <= len(data):
        room = BLOCK - at % BLOCK
        if room < HEADER:
            at += room
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        start, at = at + HEADER, at + HEADER + length
        if not WHOLE <= kind <= LAST or at > len(data):
            return
        parts = data[start:at] if kind in (WHOLE, FIRST) else parts + data[start:at]
        if kind in (WHOLE, LAST):
            yield at, parts
