"""How many entries a sparsifier sends: a share of the vector, or a number."""

from __future__ import annotations

from fedcomp.compressor.check import check_fraction


def check_amount(fraction: float, k: int | None) -> None:
    """Raise ValueError unless the share is in (0, 1] and k is null or a positive integer."""
    check_fraction("compressor.fraction", fraction)
    if k is not None and (not isinstance(k, int) or isinstance(k, bool) or k < 1):
        raise ValueError(f"compressor.k={k} must be a positive integer, or null for round(fraction * D)")


def check_amount_fits(k: int | None, dim: int) -> None:
    """Raise ValueError if more entries are to be sent than there are."""
    if k is not None and k > dim:
        raise ValueError(f"compressor.k={k} is more than the D = {dim} entries of the vector: take at most {dim}")


def amount(fraction: float, k: int | None, dim: int) -> int:
    """k where it is given, else max(1, round(fraction * D))."""
    check_amount_fits(k, dim)
    return max(1, round(fraction * dim)) if k is None else k
