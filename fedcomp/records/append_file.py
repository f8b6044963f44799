"""An append-only file with a single writer, which notices changes by others."""

from __future__ import annotations

from pathlib import Path

from fedcomp.records.atomic_write import explained, write_atomically


class AppendOnlyFile:
    """Appends lines to a file. It keeps the expected size, and so notices a file that was deleted or changed.

    Args:
        path: the file; it need not exist. A half-written last line of a killed run is cut off.

    Raises:
        ValueError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._size = path, 0
        if path.exists():
            with explained(path), path.open("rb+") as file:
                self._size = file.read().rfind(b"\n") + 1
                file.truncate(self._size)

    def append(self, line: bytes) -> None:
        """Hand a line to the operating system. Raises ValueError: disk full, or as `check`."""
        self.check()
        with explained(self.path), self.path.open("ab") as file:
            file.write(line)
        self._size += len(line)

    def replace(self, content: bytes) -> None:
        """Write the whole file anew, in one step."""
        write_atomically(self.path, content)
        self._size = len(content)

    def check(self) -> None:
        """Raise ValueError: the file was deleted or changed by somebody else since this process wrote it."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            if self._size == 0:
                return
            size = None
        if size != self._size:
            what = "deleted" if size is None else "changed by somebody else"
            raise ValueError(
                f"{self.path} was {what} while the run was running, so its record is no longer whole: put the file "
                "back, or start anew with overwrite=true"
            )
