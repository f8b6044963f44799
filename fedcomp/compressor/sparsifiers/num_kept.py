"""How many entries a sparsifier sends: a share of the vector, or a number."""

from __future__ import annotations

from fedcomp.core.validate import OptionError, check_count, check_interval

FRACTION = 0.03
"""The default fraction of entries that sparsifiers send; FedMRN's."""


def check_num_kept(
    fraction: float | None, k: int | None, match_bits: float | None = None, share: str = "fraction"
) -> None:
    """Raise ValueError unless exactly one of share, number and budget is given, the others being null.

    A share at its default counts as null where another is given.

    Args:
        share: what the option `fraction` is called.
    """
    check_interval(share, fraction, "(0, 1]", "the share of entries that is sent", or_null=True)
    check_count("k", k, meaning="null for round(fraction * D)", or_null=True)
    given = {"k": k, "match_bits": match_bits}
    if any(value is not None for value in given.values()) and fraction == FRACTION:
        fraction = None
    said = [f"{name}={value}" for name, value in ({share: fraction} | given).items() if value is not None]
    if len(said) > 1:
        raise OptionError(
            f"{' and '.join(said)} both set the number of entries: give one of them, and null for the other"
        )
    if not said:
        raise OptionError(f"{share} and k are both null: give one of them")


def check_num_kept_fits(k: int | None, dim: int) -> None:
    """Raise ValueError if more entries are to be sent than there are."""
    if k is not None and k > dim:
        raise OptionError(f"k={k} is more than the D = {dim} entries of the vector: take at most {dim}")


def num_kept(fraction: float | None, k: int | None, dim: int) -> int:
    """k where it is given, else max(1, round(fraction * D))."""
    check_num_kept_fits(k, dim)
    if k is not None:
        return k
    assert fraction is not None, "check_num_kept demands one of them"
    return max(1, round(fraction * dim))
