"""Files that survive a kill: replaced in one step, also through a power loss."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A hidden temporary file beside `path` to write to; renamed to `path` at the end, removed if anything raised.

    The content is on disk before the rename, and the rename before the block is left.

    Raises:
        ValueError: the file cannot be written (one line: which, why, what to do).
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with explained(path):
            yield temporary
            sync(temporary)
            os.replace(temporary, path)
            sync(path.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the content of `path` in one step. Raises ValueError as `atomic_path` does."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def sync(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that cannot do it for a folder
            raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an OSError while writing `path` into a ValueError of one line."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ValueError(f"cannot write {path}: {reason}; free the place or choose another output folder") from error
