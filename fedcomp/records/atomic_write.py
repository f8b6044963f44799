"""Files that survive a kill: replaced in one step, also through a power loss, or appended to line by line."""

from __future__ import annotations

import contextlib
import errno
import hashlib
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


class AppendOnlyFile:
    """Appends lines to a file. It keeps the expected size, and so notices a file that was deleted or changed.

    Attributes:
        digest: SHA-256 of what the file holds, in hex digits.

    Args:
        path: the file; it need not exist. A half-written last line of a killed run is cut off.

    Raises:
        ValueError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._size, self._sum = path, 0, hashlib.sha256()
        if path.exists():
            with explained(path), path.open("rb+") as file:
                content = file.read()
                self._size = content.rfind(b"\n") + 1
                self._sum.update(content[: self._size])
                file.truncate(self._size)

    @property
    def digest(self) -> str:
        return self._sum.hexdigest()

    def append(self, line: bytes) -> None:
        """Hand a line to the operating system. Raises ValueError: disk full, or as `check`."""
        self.check()
        with explained(self.path), self.path.open("ab") as file:
            file.write(line)
        self._size += len(line)
        self._sum.update(line)

    def replace(self, content: bytes) -> None:
        """Write the whole file anew, in one step."""
        write_atomically(self.path, content)
        self._size, self._sum = len(content), hashlib.sha256(content)

    def check(self) -> None:
        """Raise ValueError: the file was deleted or changed by another process since this one wrote it."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            if self._size == 0:
                return
            size = None
        if size != self._size:
            what = "deleted" if size is None else "changed by another process"
            raise ValueError(
                f"{self.path} was {what} while the run was running, so its record is no longer whole: put the file "
                "back, or start anew with overwrite=true"
            )
