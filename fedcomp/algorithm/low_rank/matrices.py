"""Which weight matrices a low-rank method compresses, and where their factors lie in its messages.

Shape legend: M rows (clients), d compressed parameters; of a matrix m outputs, n inputs, r rank.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from fedcomp.core.parameter_layout import WEIGHT, ParameterSubset, ParameterTensor


@dataclass(frozen=True)
class Matrix:
    """A compressed tensor: m outputs, n inputs, and its rank min(r, m, n)."""

    outputs: int
    inputs: int
    rank: int


@dataclass(frozen=True)
class LowRank:
    """The matrices that are compressed, and the columns of the parameters that they come from."""

    matrices: tuple[Matrix, ...]
    part: ParameterSubset

    @classmethod
    def of(cls, tensors: Sequence[ParameterTensor], rank: int, min_ratio: float) -> "LowRank":
        """The weight matrices whose factors of rank r have at most 1 / `min_ratio` of the matrix's floats."""

        def matrix(tensor: ParameterTensor) -> Matrix:
            outputs = tensor.size // tensor.fan_in
            return Matrix(outputs, tensor.fan_in, min(rank, outputs, tensor.fan_in))

        def belongs(tensor: ParameterTensor) -> bool:
            one = matrix(tensor)
            floats = one.rank * (one.outputs + one.inputs)
            return tensor.kind == WEIGHT and tensor.size >= min_ratio * floats

        return cls(tuple(matrix(one) for one in tensors if belongs(one)), ParameterSubset.of(tensors, belongs))

    def split(self, rows: Tensor) -> list[Tensor]:
        """Each matrix [M, m, n] of the compressed columns [M, d]."""
        parts = rows.split([one.outputs * one.inputs for one in self.matrices], 1)
        return [part.view(-1, one.outputs, one.inputs) for part, one in zip(parts, self.matrices, strict=True)]

    def split_left(self, flat: Tensor) -> list[Tensor]:
        """Each P [M, m, r] of its floats in a row."""
        parts = flat.split([one.outputs * one.rank for one in self.matrices], 1)
        return [part.view(-1, one.outputs, one.rank) for part, one in zip(parts, self.matrices, strict=True)]

    def split_right(self, flat: Tensor) -> list[Tensor]:
        """Each Q [M, n, r] of its floats in a row."""
        parts = flat.split([one.inputs * one.rank for one in self.matrices], 1)
        return [part.view(-1, one.inputs, one.rank) for part, one in zip(parts, self.matrices, strict=True)]
