"""Which parameter tensors the columns of a row of parameters come from, and subsets of these columns.

Shape legend: M rows, D parameters, d of them in a subset.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

WEIGHT, BIAS, NORMALISATION, EMBEDDING, OTHER = "weight", "bias", "normalisation", "embedding", "other"


@dataclass(frozen=True)
class LoraFactor:
    """One factor of a low-rank adapter: a layer with adapter computes W x + b + scale B (A x), with A [r, i], B [o, r].

    Attributes:
        matrix: number of the adapted matrix W, from 0, in the order of the model.
        role: "A" or "B".
        rank: r. inputs: i. outputs: o. scale: s, alpha / r or alpha / sqrt(r).
    """

    matrix: int
    role: str
    rank: int
    inputs: int
    outputs: int
    scale: float

    @property
    def shape(self) -> tuple[int, int]:
        """[r, i] of A, [o, r] of B."""
        return (self.rank, self.inputs) if self.role == "A" else (self.outputs, self.rank)


@dataclass(frozen=True)
class ParameterTensor:
    """One parameter tensor of a model.

    Attributes:
        size: number of its entries.
        kind: "weight", with at least two axes; "bias"; "normalisation": scale or shift of BatchNorm, LayerNorm and
            similar layers; "embedding", a row a token; "other", such as the centres of a model that is not a network.
        fan_in: number of inputs of one output of its layer; 1 where this is undefined.
        kernel: height of a convolution's kernel; 1 for other layers.
        lora: which factor of which adapter it is; None for all other tensors. No shape says so: o may equal r.
    """

    size: int
    kind: str = OTHER
    fan_in: int = 1
    kernel: int = 1
    lora: LoraFactor | None = None


@dataclass(frozen=True)
class ParameterSubset:
    """Some columns of rows [M, D]: those of whole parameter tensors.

    Attributes:
        dim: D.
        runs: (first, end) column ranges of its tensors, adjacent ranges merged.
        layers: size of each tensor.
    """

    dim: int
    runs: tuple[tuple[int, int], ...]
    layers: tuple[int, ...]

    @classmethod
    def of(cls, tensors: Sequence[ParameterTensor], belongs: Callable[[ParameterTensor], bool]) -> "ParameterSubset":
        """The columns of the tensors for which `belongs` is true."""
        return cls.at(tensors, {place for place, tensor in enumerate(tensors) if belongs(tensor)})

    @classmethod
    def at(cls, tensors: Sequence[ParameterTensor], places: Collection[int]) -> "ParameterSubset":
        """The columns of the tensors with these numbers, from 0, in the order of the model."""
        runs: list[tuple[int, int]] = []
        layers, first = [], 0
        for place, tensor in enumerate(tensors):
            end = first + tensor.size
            if place in places:
                layers.append(tensor.size)
                start = runs.pop()[0] if runs and runs[-1][1] == first else first
                runs.append((start, end))
            first = end
        return cls(first, tuple(runs), tuple(layers))

    @property
    def size(self) -> int:
        """d."""
        return sum(self.layers)

    @property
    def rest(self) -> "ParameterSubset":
        """The other columns, without the boundaries between their tensors."""
        ends = (0, *(column for run in self.runs for column in run), self.dim)
        runs = tuple((first, end) for first, end in zip(ends[::2], ends[1::2], strict=True) if end > first)
        return ParameterSubset(self.dim, runs, tuple(end - first for first, end in runs))

    def take(self, rows: Tensor) -> Tensor:
        """The subset's columns [..., d] of rows [..., D]; the rows themselves if it has all."""
        if self.size == self.dim:
            return rows
        pieces = [rows[..., first:end] for first, end in self.runs]
        return torch.cat(pieces, -1) if pieces else rows[..., :0]

    def put(self, rows: Tensor, values: Tensor) -> Tensor:
        """A copy of rows [..., D] with the subset's columns replaced by values [..., d]."""
        if self.size == self.dim:
            return values
        return self.put_(rows.clone(), values)

    def put_(self, rows: Tensor, values: Tensor) -> Tensor:
        """As `put`, in place."""
        sizes = [end - first for first, end in self.runs]
        for (first, end), piece in zip(self.runs, values.split(sizes, -1) if sizes else (), strict=True):
            rows[..., first:end] = piece
        return rows


def is_normalisation(tensor: ParameterTensor) -> bool:
    """Whether it is a scale or shift of BatchNorm, LayerNorm or a similar layer."""
    return tensor.kind == NORMALISATION
