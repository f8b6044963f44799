"""Error feedback that belongs to a method, so any compressor gets it."""

from __future__ import annotations

from dataclasses import replace

from fedcomp.compressor import Compressor
from fedcomp.compressor.feedback import ErrorFeedback, NoFeedback


def remembering(compressor: Compressor, group: str) -> Compressor:
    """The compressor with error feedback; one that has a memory already, such as a fading one, keeps its own.

    Args:
        group: the compressor's config key, for errors.

    Raises:
        ValueError: an unbiased codec whose error can be larger than what it sends.
    """
    if not isinstance(compressor.feedback, NoFeedback):
        return compressor
    try:
        return replace(compressor, feedback=ErrorFeedback())
    except ValueError as error:
        name = type(compressor.codec).__name__
        raise ValueError(
            f"{group}: the algorithm remembers what {name} leaves out, but as configured {name} is unbiased and its "
            "error can be larger than what it sends, so that the memory would grow without end: use a biased setting "
            "of it that only shrinks, or another compressor"
        ) from error
