"""Where the factors A and B of each low-rank adapter lie within rows of parameters.

Shape legend: M rows, D parameters; of an adapted matrix W [o, i]: rank r, A [r, i], B [o, r], scale s.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from fedcomp.core.parameter_layout import LoraFactor, ParameterSubset, ParameterTensor

Factors = tuple[Tensor, Tensor]
"""A [M, r, i] and B [M, o, r] of one adapted matrix."""


@dataclass(frozen=True)
class LoraMatrix:
    """An adapted matrix.

    Attributes:
        rank, inputs, outputs: r, i, o. scale: s.
        a, b: first columns of A and B in a row; `a` is None where A is frozen, so that B alone is in the row.
    """

    rank: int
    inputs: int
    outputs: int
    scale: float
    a: int | None
    b: int

    @property
    def a_size(self) -> int:
        """r i, the number of A's entries."""
        return self.rank * self.inputs

    @property
    def b_size(self) -> int:
        """o r, the number of B's entries."""
        return self.outputs * self.rank


@dataclass(frozen=True)
class LoraLayout:
    """The adapters of a model, by matrix.

    Attributes:
        dim: D.
        matrices: the adapted matrices, in the order of the model.
        a, b: columns of all A's and of all B's. rest: the others, such as a trained head.
    """

    dim: int
    matrices: tuple[LoraMatrix, ...]
    a: ParameterSubset
    b: ParameterSubset
    rest: ParameterSubset

    @classmethod
    def of(cls, tensors: Sequence[ParameterTensor]) -> "LoraLayout":
        """The adapters among these tensors; ValueError if there are none."""
        firsts: dict[int, dict[str, int]] = {}
        factors: dict[int, LoraFactor] = {}
        first = 0
        for tensor in tensors:
            if tensor.lora is not None:
                firsts.setdefault(tensor.lora.matrix, {})[tensor.lora.role] = first
                factors[tensor.lora.matrix] = tensor.lora
            first += tensor.size
        if not factors:
            raise ValueError(
                "the model has no low-rank adapters, which the algorithm works on: take a model with adapters, such as "
                "model=hf model.adapter=lora, or another algorithm"
            )
        matrices = []
        for number in sorted(factors):
            one, at = factors[number], firsts[number]
            assert "B" in at, "B is always trained"
            matrices.append(LoraMatrix(one.rank, one.inputs, one.outputs, one.scale, at.get("A"), at["B"]))
        return cls(
            first,
            tuple(matrices),
            ParameterSubset.of(tensors, lambda tensor: tensor.lora is not None and tensor.lora.role == "A"),
            ParameterSubset.of(tensors, lambda tensor: tensor.lora is not None and tensor.lora.role == "B"),
            ParameterSubset.of(tensors, lambda tensor: tensor.lora is None),
        )

    @property
    def trains_a(self) -> bool:
        """Whether every A is in the row; where A is frozen, B alone is."""
        return all(matrix.a is not None for matrix in self.matrices)

    def check_trains_a(self) -> None:
        """Raise ValueError if A is frozen, as with `model.trains=b`."""
        if not self.trains_a:
            raise ValueError(
                "the model's A is frozen and no part of what is learnt, but the algorithm works on A and B: take "
                "model.trains=both"
            )

    def factors(self, rows: Tensor) -> list[Factors]:
        """A [M, r, i] and B [M, o, r] of each matrix: views of the rows [M, D]. ValueError if A is frozen."""
        self.check_trains_a()
        found = []
        for matrix in self.matrices:
            assert matrix.a is not None
            a = rows[:, matrix.a : matrix.a + matrix.a_size].unflatten(1, (matrix.rank, matrix.inputs))
            b = rows[:, matrix.b : matrix.b + matrix.b_size].unflatten(1, (matrix.outputs, matrix.rank))
            found.append((a, b))
        return found

    def put(self, rows: Tensor, factors: Sequence[Factors]) -> Tensor:
        """A copy of rows [M, D] with A and B of each matrix replaced. ValueError if A is frozen."""
        changed = rows.clone()
        for (own_a, own_b), (a, b) in zip(self.factors(changed), factors, strict=True):
            own_a.copy_(a)
            own_b.copy_(b)
        return changed
