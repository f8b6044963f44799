"""Random directions v_1, ..., v_L that vectors are projected on: drawn in blocks, at both ends, and never stored.

Coordinates come in blocks of `width(D)`, a number that follows from D alone; block b of direction l is the stretch
[(b L + l) width, ...) of its row's stream of draws. So no value depends on how many rows there are, and the memory
beside the vectors is O(block) a row. Sums over coordinates are taken in float64 and in a fixed order (`tree_sum`).

Shape legend: M vectors (rows), R streams of draws (M, or 1 that all rows share), D entries, L directions, n entries of
a block, g directions drawn at once.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from fedcomp.random.keys import Key

BLOCK = 1 << 16
Distribution = Literal["rademacher", "gaussian", "sphere"]


@dataclass(frozen=True)
class Source:
    """What names the draws.

    Attributes:
        key: of all rows. ids: [R] int64, one stream a row, or a single one for all rows.
    """

    key: Key
    ids: Tensor

    def draw(self, distribution: str, num: int, start: int) -> Tensor:
        """[R, num] float32 from draw `start` on: signs, or standard normal draws."""
        if distribution == "rademacher":
            return self.key.rademacher(self.ids, num, start)
        return self.key.normal(self.ids, num, start)


class Directions(Protocol):
    """L directions a row: `project` encodes, `blocks` decodes, and E[decoded] = x."""

    def project(self, x: Tensor, source: Source) -> Tensor:
        """[M, L] float64 scalars of x [M, D]."""

    def blocks(self, scalars: Tensor, source: Source, dim: int) -> Iterator[tuple[slice, Tensor]]:
        """Block by block, the entries [M, n] float64 of the vectors that scalars [M, L] float64 stand for."""


@dataclass(frozen=True)
class Independent:
    """v_l drawn independently with E[v v^T] = I: scalars <x, v_l>, decoded to (1/L) sum_l r_l v_l.

    Attributes:
        distribution: rademacher, +-1; gaussian, N(0, 1); sphere, sqrt(D) times a uniformly random unit vector.
        num: L.
    """

    distribution: str
    num: int

    def project(self, x: Tensor, source: Source) -> Tensor:
        total = x.new_zeros(x.shape[0], self.num, dtype=torch.float64)
        norm = total.new_zeros(source.ids.shape[0], self.num)
        for part, at, v in self._draws(source, x.shape[1]):
            total[:, at] += tree_sum(x[:, None, part].to(torch.float64) * v, 2)
            if self.distribution == "sphere":
                norm[:, at] += tree_sum(v.square(), 2)
        return total * self._length(norm, x.shape[1])

    def blocks(self, scalars: Tensor, source: Source, dim: int) -> Iterator[tuple[slice, Tensor]]:
        norm = scalars.new_zeros(source.ids.shape[0], self.num)
        if self.distribution == "sphere":
            for _, at, v in self._draws(source, dim):
                norm[:, at] += tree_sum(v.square(), 2)
        scaled = scalars * (self._length(norm, dim) / self.num)
        entries = None
        for part, at, v in self._draws(source, dim):
            some = tree_sum(scaled[:, at, None] * v, 1)
            entries = some if entries is None else entries.add_(some)
            if at.stop == self.num:
                yield part, entries
                entries = None

    def _draws(self, source: Source, dim: int) -> Iterator[tuple[slice, slice, Tensor]]:
        """Block by block, and some directions at a time: (coordinates, directions, draws [R, g, n] float64)."""
        wide = width(dim)
        at_once = max(1, BLOCK // wide)
        for block, first in enumerate(range(0, dim, wide)):
            part = slice(first, min(first + wide, dim))
            for begin in range(0, self.num, at_once):
                at = slice(begin, min(begin + at_once, self.num))
                num, start = (at.stop - begin) * wide, (block * self.num + begin) * wide
                draws = source.draw(self.distribution, num, start).view(-1, at.stop - begin, wide)
                yield part, at, draws[:, :, : part.stop - first].to(torch.float64)

    def _length(self, norm: Tensor, dim: int) -> Tensor | float:
        """What a drawn vector is multiplied by, given its squared norm [R, L]."""
        return math.sqrt(dim) / norm.sqrt() if self.distribution == "sphere" else 1.0


@dataclass(frozen=True)
class Orthonormal:
    """Projection on a uniformly random subspace, the span of L <= D Gaussian vectors, of which no basis is stored.

    With V [L, D] of L Gaussian rows and its Gram matrix G = V V^T = C C^T (Cholesky), the rows of Q = C^-1 V are an
    orthonormal basis of their span. Encoded is r = Q x = C^-1 (V x), decoded (D / L) Q^T r = (D / L) V^T (C^-T r): V is
    drawn block by block, once to encode and twice to decode. Since E[Q^T Q] = (L / D) I the estimate is unbiased, its
    mean squared error is (D / L - 1) ||x||^2, and at L = D it is x.

    Attributes:
        num: L.
    """

    num: int

    def project(self, x: Tensor, source: Source) -> Tensor:
        inner = x.new_zeros(x.shape[0], self.num, dtype=torch.float64)
        gram = inner.new_zeros(source.ids.shape[0], self.num, self.num)
        for part, stream, v in self._draws(source, x.shape[1]):
            gram[stream] += v @ v.t()
            for row in [stream] if len(gram) > 1 else range(len(x)):
                inner[row] += tree_sum(x[row, part].to(torch.float64) * v, 1)
        basis = _cholesky(gram).expand(len(x), -1, -1)
        return _solve(basis, inner)

    def blocks(self, scalars: Tensor, source: Source, dim: int) -> Iterator[tuple[slice, Tensor]]:
        gram = scalars.new_zeros(source.ids.shape[0], self.num, self.num)
        for _, stream, v in self._draws(source, dim):
            gram[stream] += v @ v.t()
        basis = _cholesky(gram).expand(len(scalars), -1, -1)
        weight = _solve(basis, scalars, transposed=True) * (dim / self.num)
        entries = scalars.new_empty(0)
        for part, stream, v in self._draws(source, dim):
            if not stream:
                entries = scalars.new_empty(len(scalars), v.shape[1])
            for row in [stream] if len(gram) > 1 else range(len(scalars)):
                entries[row] = tree_sum(weight[row, :, None] * v, 0)
            if stream == len(gram) - 1:
                yield part, entries

    def _draws(self, source: Source, dim: int) -> Iterator[tuple[slice, int, Tensor]]:
        """Block by block, stream by stream: (coordinates, which stream, draws [L, n] float64).

        One stream at a time, so that the products of matrices have the same shape however many rows there are.
        """
        wide = width(dim)
        for block, first in enumerate(range(0, dim, wide)):
            part = slice(first, min(first + wide, dim))
            for stream in range(source.ids.shape[0]):
                own = Source(source.key, source.ids[stream : stream + 1])
                draws = own.draw("gaussian", self.num * wide, block * self.num * wide).view(self.num, wide)
                yield part, stream, draws[:, : part.stop - first].to(torch.float64)


def width(dim: int) -> int:
    """Coordinates of a block: all of a small vector, rounded up to whole counters of the generator."""
    return min(BLOCK, -(-dim // 128) * 128)


def tree_sum(terms: Tensor, dim: int) -> Tensor:
    """Sum over one axis, whose halves are added to each other until one entry is left; `terms` is used up.

    The order follows from the number of terms alone, so a row's sum is the same bit for bit whatever rows stand beside
    it, on every device. Library sums choose their order by the tensor's whole shape.
    """
    left = terms.shape[dim]
    while left > 1:
        half = (left + 1) // 2
        terms.narrow(dim, 0, left - half).add_(terms.narrow(dim, half, left - half))
        left = half
    return terms.select(dim, 0)


def _cholesky(gram: Tensor) -> Tensor:
    """[R, L, L] lower factors, without asking the device whether it went well: dependent rows have probability 0."""
    return torch.stack([torch.linalg.cholesky_ex(one).L for one in gram]) if len(gram) else gram


def _solve(lower: Tensor, right: Tensor, transposed: bool = False) -> Tensor:
    """[M, L]: C^-1 b of each row, or C^-T b."""
    rows = []
    for factor, one in zip(lower, right):
        matrix = factor.t() if transposed else factor
        rows.append(torch.linalg.solve_triangular(matrix, one[:, None], upper=transposed)[:, 0])
    return torch.stack(rows) if rows else right
