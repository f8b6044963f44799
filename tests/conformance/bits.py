"""Closed forms of a round's bits, for `AlgorithmCase.bits`."""

from __future__ import annotations


def dense(dim: int, stats: int, layers: tuple[int, ...], cohort: int) -> dict[str, int]:
    """Dense messages both ways."""
    each = 32 * (dim + stats)
    return {"uplink": cohort * each, "downlink": cohort * each, "broadcast": each}


def topk(dim: int, stats: int, layers: tuple[int, ...], cohort: int) -> dict[str, int]:
    """A fifth of the entries with their indices up, dense down."""
    kept = max(1, round(0.2 * dim))
    uplink = kept * (32 + (dim - 1).bit_length()) + 32 * stats
    return dense(dim, stats, layers, cohort) | {"uplink": cohort * uplink}
