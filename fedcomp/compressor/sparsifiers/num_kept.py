"""How many entries a sparsifier sends: a share of the vector, or a number."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from fedcomp.compressor.contract import Codec
from fedcomp.core.ranges import Whole, Within
from fedcomp.core.validate import OptionError

FRACTION = 0.03
"""The default fraction of entries that sparsifiers send; FedMRN's."""
Fraction = Annotated[float | None, Within("(0, 1]", "the share of entries that is sent")]
NumKept = Annotated[int | None, Whole(meaning="null for round(fraction * D)")]


@dataclass(frozen=True)
class Sparsifier(Codec):
    """A codec that sends k of D numbers; a fraction makes k = max(1, round(fraction * D))."""

    fraction: Fraction = FRACTION
    k: NumKept = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_given("fraction", self.fraction, self.instead)

    @property
    def instead(self) -> dict[str, float | None]:
        """The options that set the number of entries in place of `fraction`."""
        return {"k": self.k}

    def check_dim(self, dim: int) -> None:
        self.num_sent(dim)

    def num_sent(self, dim: int) -> int:
        """k for a vector of `dim` entries. Raises ValueError: k > D."""
        if self.k is None:
            assert self.fraction is not None, "check_one_given demands one of them"
            return num_kept(self.fraction, dim)
        if self.k > dim:
            raise OptionError(f"k={self.k} is more than the D = {dim} entries of the vector: take at most {dim}")
        return self.k


def check_one_given(name: str, fraction: float | None, instead: Mapping[str, float | None]) -> None:
    """Raise ValueError unless exactly one of the share called `name` and the others is given, the rest being null.

    A share at its default counts as null where another is given.
    """
    if any(value is not None for value in instead.values()) and fraction == FRACTION:
        fraction = None
    said = [f"{name}={value}" for name, value in ({name: fraction} | dict(instead)).items() if value is not None]
    if len(said) > 1:
        raise OptionError(
            f"{' and '.join(said)} both set the number of entries: give one of them, and null for the other"
        )
    if not said:
        raise OptionError(f"{name} and k are both null: give one of them")


def num_kept(fraction: float, dim: int) -> int:
    """max(1, round(fraction * D))."""
    return max(1, round(fraction * dim))
