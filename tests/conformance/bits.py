"""Closed forms of a round's bits, for `AlgorithmCase.bits`."""

from collections.abc import Callable

from fedcomp.check import world
from fedcomp.check.algorithm import Bits

Message = Callable[[int, int, tuple[int, ...]], int]
"""(dim, num_stats, layers) -> bits of one message."""


def links(up: Message, down: Message | None = None, *, to_all: bool = False) -> Bits:
    """A message from each of the cohort, and one (None: of the same length) to all of them, or to all clients."""

    def bits(dim: int, stats: int, layers: tuple[int, ...], cohort: int) -> dict[str, int]:
        sent, received = up(dim, stats, layers), (down or up)(dim, stats, layers)
        receivers = world.NUM_CLIENTS if to_all else cohort
        return {"uplink": cohort * sent, "downlink": receivers * received, "broadcast": received}

    return bits


def relayed(message: Callable[[int], int]) -> Bits:
    """The message of each client, of so many parameters, to all others."""

    def bits(dim: int, stats: int, layers: tuple[int, ...], cohort: int) -> dict[str, int]:
        each = message(dim)
        return {"uplink": cohort * each, "downlink": cohort * (cohort - 1) * each, "broadcast": cohort * each}

    return bits


def floats(dim: int, stats: int, layers: tuple[int, ...]) -> int:
    """Parameters and statistics."""
    return 32 * (dim + stats)


def largest(dim: int, stats: int, layers: tuple[int, ...]) -> int:
    """A fifth of the entries with their indices, and statistics."""
    return max(1, round(0.2 * dim)) * (32 + (dim - 1).bit_length()) + 32 * stats


dense, topk = links(floats), links(largest, floats)
