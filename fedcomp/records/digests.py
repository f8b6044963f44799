"""Whether a run's record is what the run wrote: SHA-256 of its files.

The checkpoint has those of the lines before it, the status of a finished run those of the whole files.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from fedcomp.core.parse import parse_json
from fedcomp.records.metrics_file import FILE, REPETITIONS

Digests = Mapping[str, str]
"""{name of a file in the run's folder: SHA-256 of its whole lines, in hex digits}."""


def check_unchanged(folder: Path, digests: Digests, through: int | None = None) -> None:
    """Refuse a record that was changed since the run wrote it.

    Args:
        folder: of the run. digests: of its files, as they were written.
        through: the last round that they cover, in files that may have lines of later ones; None: all lines.
    Raises:
        ValueError: naming the first file that differs, or that is gone.
    """
    for name, digest in digests.items():
        if name not in (FILE, REPETITIONS):  # a status from elsewhere may name any file of this machine
            raise ValueError(f"{folder} has a checksum of {name!r}, which is no file of a record")
        path = folder / name
        try:
            lines = path.read_bytes().split(b"\n")[:-1]
        except OSError as error:
            raise ValueError(f"cannot read {path}: {error.strerror}") from error
        kept = lines if through is None else [raw for raw in lines if parse_json(raw)["round"] <= through]
        if hashlib.sha256(b"".join(raw + b"\n" for raw in kept)).hexdigest() != digest:
            raise ValueError(
                f"{path} is not what the run wrote (its checksum differs): put the file back, or start anew with "
                "overwrite=true"
            )
