"""The files of a run's folder, which one process owns at a time. `training/place.py` says where the folder lies."""

import contextlib
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fedcomp.records.atomic_write import explained

WITHOUT_EFFECT = frozenset(
    {
        "name",
        "label",
        "seed",
        "output_root",
        "overwrite",
        "accept_changes",
        "checkpoint_every",
        "threads",
        "pictures",
        "figures",
        "vars",
        "quiet",
        "verbose",
        "tracker",
        "launcher",
        "sweeper",
        "objective",
        "dataset.root",
        "dataset.download",
        "dataset.check_md5",
    }
)
"""Keys that change no number of a run. They are left out of its hash; the seed has a folder of its own."""

VERSION = "defaults_version"
"""The key of a YAML file that counts changes of its defaults."""
CONFIG, CHECKPOINT, LOG, CURVE, PARTITION = "config.yaml", "checkpoint.pt", "run.log", "curve.png", "partition.png"
SLOWEST = "slowest.png"
LOCK, LOCKS = ".lock", Path("/proc/locks")
IDENTITY = "identity.json"
"""Beside the folders of the seeds: what of the config is hashed."""


@contextlib.contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Lock the folder, made if missing; released when the process ends, also when it is killed.

    One that was made here, and in which nothing was written, is gone again at the end.

    Raises ValueError: another process holds it, or it has no lock yet and none can be made.
    """
    path = folder / LOCK
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    with _locked(path):
        for left in folder.glob(".*.tmp"):  # temporary files of a killed process
            left.unlink(missing_ok=True)
        try:
            yield
        finally:
            if made and [one.name for one in folder.glob("*")] == [LOCK]:
                path.unlink()
                with contextlib.suppress(OSError):  # another process has written there
                    for one in made:
                        one.rmdir()


def _locked(path: Path) -> IO[str]:
    """The file at `path`, made if missing, and locked. Raises ValueError: another process holds it."""
    for patience in (0.05, 0.1, 0.2, 0.0):  # `held` may have it for microseconds
        with explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = _opened(path)
        with contextlib.suppress(OSError):
            fcntl.flock(file, (fcntl.LOCK_EX if file.writable() else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):  # else its owner has removed it
                return file
        file.close()
        time.sleep(patience)
    process = _holder(path)
    who = "another process: wait for it" if process is None else f"process {process}: wait for it, `kill {process}`"
    raise ValueError(f"{path.parent} is being written by {who}, or change name or seed")


def _opened(path: Path) -> IO[str]:
    """The file, never another's; only to be read in a folder that cannot be written, as in an archive of runs."""
    try:
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "r+")
    except OSError as error:
        if os.access(path.parent, os.W_OK):  # who may write there must hold it alone
            raise
        try:
            return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW))
        except OSError:
            raise error from None


def _holder(path: Path) -> str | None:
    """The process that has locked the file, where Linux knows it: on this machine."""
    try:
        found, locks = path.stat(), LOCKS.read_text()
    except OSError:
        return None
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    process = re.search(rf" ([1-9]\d*) {place} ", locks)
    return None if process is None else process[1]


def held(folder: Path) -> bool:
    """Whether a process holds the folder's lock; across machines where the file system shares locks."""
    try:
        file = (folder / LOCK).open("rb")
    except OSError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        return False


def clear(folder: Path) -> None:
    """Remove what an earlier run left in the folder (`overwrite=true`), but not the lock, nor what a client holds."""
    for path in folder.iterdir():
        if path.name == LOCK or held(path):
            continue
        with explained(path):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
