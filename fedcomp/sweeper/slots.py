"""Who works on a study: one command alone, or several that share it (`sweeper.shared=true`).

Locks of files, which end with their process, also when it is killed, and which count across machines where the file
system shares them:

- `.lock`: held by one command alone, or by all that share the study.
- `.slot-<n>`: held by the command with slot n. A trial notes its command's slot, so that the others see whether the
  command that runs it is still there.
- `.asking`: held while a command counts the trials and asks for more, so that all together ask for as many as wanted.
"""

import contextlib
import fcntl
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fedcomp.records.atomic_write import explained
from fedcomp.records.run_folder import LOCK


@dataclass(frozen=True)
class Slot:
    """One command's place at a study; no two commands have the same number, from 0 on, at a time."""

    folder: Path
    number: int

    def taken(self, number: int) -> bool:
        """Whether another command has the slot `number`."""
        if number == self.number or not _slot(self.folder, number).exists():
            return False
        with _slot(self.folder, number).open("rb") as file:
            return not _lock(file, fcntl.LOCK_SH)

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Within the block no other command counts trials or asks for some."""
        with (self.folder / ".asking").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


@contextlib.contextmanager
def slot(folder: Path, study: str, shared: bool) -> Iterator[Slot]:
    """Take a slot at a study, whose folder is made if missing; it is free again when the process ends.

    Raises:
        ValueError: another command works on the study, and they do not both share it; or the folder cannot be written.
    """
    path = folder / LOCK
    with explained(path):
        folder.mkdir(parents=True, exist_ok=True)
        everyone = path.open("w")
    with everyone:
        if not _lock(everyone, fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
            alone = "the other command has no sweeper.shared=true" if shared else "another command works on it"
            raise ValueError(
                f"study {study} in {folder}: {alone}; wait for it, give both sweeper.shared=true, or give this one "
                "another sweeper.folder"
            )
        for number in itertools.count():
            with _slot(folder, number).open("w") as own:
                if _lock(own, fcntl.LOCK_EX):
                    yield Slot(folder, number)
                    return


def _slot(folder: Path, number: int) -> Path:
    return folder / f".slot-{number}"


def _lock(file: IO[bytes] | IO[str], kind: int) -> bool:
    """Whether the lock could be had at once."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
