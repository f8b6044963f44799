"""How many entries a sparsifier sends: a share of the vector, or a number."""

from __future__ import annotations

from fedcomp.core.validate import check_count, check_interval

FRACTION = 0.03
"""The default fraction of entries that sparsifiers send; FedMRN's."""


def check_num_kept(fraction: float | None, k: int | None, match_bits: float | None = None) -> None:
    """Raise ValueError unless exactly one of share, number and budget is given, the others being null.

    A share at its default counts as null where another is given.
    """
    check_interval("compressor.fraction", fraction, "(0, 1]", "the share of entries that is sent", or_null=True)
    check_count("compressor.k", k, meaning="null for round(fraction * D)", or_null=True)
    given = {"compressor.k": k, "compressor.match_bits": match_bits}
    if any(value is not None for value in given.values()) and fraction == FRACTION:
        fraction = None
    said = [
        f"{name}={value}" for name, value in ({"compressor.fraction": fraction} | given).items() if value is not None
    ]
    if len(said) > 1:
        raise ValueError(
            f"{' and '.join(said)} both set the number of entries: give one of them, and null for the other"
        )
    if not said:
        raise ValueError("compressor.fraction and compressor.k are both null: give one of them")


def check_num_kept_fits(k: int | None, dim: int) -> None:
    """Raise ValueError if more entries are to be sent than there are."""
    if k is not None and k > dim:
        raise ValueError(f"compressor.k={k} is more than the D = {dim} entries of the vector: take at most {dim}")


def num_kept(fraction: float | None, k: int | None, dim: int) -> int:
    """k where it is given, else max(1, round(fraction * D))."""
    check_num_kept_fits(k, dim)
    if k is not None:
        return k
    assert fraction is not None, "check_num_kept demands one of them"
    return max(1, round(fraction * dim))
