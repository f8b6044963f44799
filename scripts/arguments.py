"""What scripts ask of their arguments: jobs that are there, a device that is here, numbers of 1 or more."""

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path

from fedcomp.runtime.device_name import device_name


def one_of(names: Iterable[str]) -> Callable[[str], str]:
    """A type of argparse's: the text itself, which must be one of the names."""
    known = list(names)

    def checked(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"{text} must be one of {', '.join(known)}")
        return text

    return checked


def positive(text: str) -> int:
    """A type of argparse's: a whole number, 1 or more."""
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text} must be a whole number, 1 or more")
    return int(text)


def folder(text: str) -> Path:
    """A type of argparse's: the path of a folder, which need not be there."""
    at = Path(text)
    wrong = next((one for one in (at, *at.parents) if one.exists() and not one.is_dir()), None)
    if wrong is not None:
        raise argparse.ArgumentTypeError(f"{wrong} is no folder")
    return at


def device_here(text: str) -> str:
    """A type of argparse's: the name of a device of this machine."""
    try:
        return device_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
