"""Read a published dataset from its folder, or download it there; one line says what is missing."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from pickle import UnpicklingError
from typing import TypeVar

Split = TypeVar("Split")

NO_ANSWER_S = 15.0  # timeout after which a host counts as unreachable
READ_ERRORS = (RuntimeError, OSError, ValueError, AssertionError, EOFError, KeyError, UnpicklingError)


def fetch(
    name: str, root: str, files: str, download: bool, open_split: Callable[[str, bool, bool], Split], other: str = ""
) -> tuple[Split, Split]:
    """The training and the test split: of the files that are there, else, if allowed, of a download.

    Args:
        name: the dataset, for the error.
        root: the user's data folder; `~` is expanded.
        files: which files below `root` hold the dataset, for the error.
        download: whether missing files may be downloaded.
        open_split: torchvision's constructor, (folder, whether it is the training split, whether to download) -> split;
            RuntimeError or OSError where files are missing.
        other: another way to the files, for the error, such as a package to install.
    Raises:
        ValueError: files that are missing and cannot be downloaded, or cannot be read.
    """
    folder = str(Path(root).expanduser().absolute())

    def both(with_download: bool) -> tuple[Split, Split]:
        return open_split(folder, True, with_download), open_split(folder, False, with_download)

    remedy = f"put {files} into that folder or set dataset.root to the folder that holds them"
    if other:
        remedy += f", or {other}"
    try:
        return both(with_download=False)
    except READ_ERRORS as error:
        # torchvision says "not found" also for a wrong checksum; other RuntimeErrors come from reading a file
        missing = isinstance(error, RuntimeError) and "not found" in str(error)
        if not (missing or isinstance(error, FileNotFoundError)):
            raise ValueError(
                f"dataset={name}: the files in {folder} cannot be read ({_one_line(error)}): delete them to have them "
                f"downloaded again, or {remedy}"
            ) from error
    reason = "dataset.download is false"
    if download:
        try:
            with _given_up_after(NO_ANSWER_S):
                return both(with_download=True)
        except (HTTPException, *READ_ERRORS) as error:
            reason = f"the download failed: {_one_line(error)}"
    raise ValueError(f"dataset={name}: not found, or damaged, in {folder} ({reason}): {remedy}")


def below(root: str, *names: str) -> list[Path]:
    """Absolute paths of files in the user's data folder; a name that is an absolute path stays. `~` is expanded."""
    return [(Path(root).expanduser() / Path(name).expanduser()).absolute() for name in names]


@contextmanager
def _given_up_after(seconds: float) -> Iterator[None]:
    """Sockets time out after `seconds`; torchvision's own downloads have no time limit."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _one_line(error: Exception, limit: int = 200) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else text[:limit] + "..."
