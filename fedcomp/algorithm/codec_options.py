"""Errors of a method's own codecs, whose options users know as the algorithm's: `algorithm.k`, not `compressor.k`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def algorithm_option_names(**codec_names: str) -> Iterator[None]:
    """Within it, a ValueError of a codec names its options as the algorithm's.

    Args:
        codec_names: {the algorithm's name of an option: the codec's name of it}, where they differ.
    """
    try:
        yield
    except ValueError as error:
        message = str(error)
        for own, codecs in codec_names.items():
            message = message.replace(f"compressor.{codecs}", f"algorithm.{own}")
        raise ValueError(message.replace("compressor.", "algorithm.")) from error
