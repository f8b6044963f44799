"""What the measuring scripts ask of their arguments: jobs that are there, and a device that is here."""

import argparse
from collections.abc import Callable, Iterable

from fedcomp.runtime.device_name import device_name


def one_of(names: Iterable[str]) -> Callable[[str], str]:
    """A type of argparse's: the text itself, which must be one of the names."""
    known = list(names)

    def checked(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"{text} must be one of {', '.join(known)}")
        return text

    return checked


def device_here(text: str) -> str:
    """A type of argparse's: the name of a device of this machine."""
    try:
        return device_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
