"""Orthonormal directions: projection on a uniformly random subspace, of which no basis is ever stored.

With V [L, D] of L Gaussian rows and its Gram matrix G = V V^T = C C^T (Cholesky), the rows of Q = C^-1 V are an
orthonormal basis of their span. Encoded is r = Q x = C^-1 (V x), decoded (D / L) Q^T r = (D / L) V^T (C^-T r): V is
drawn block by block, once to encode and twice to decode. Since E[Q^T Q] = (L / D) I the estimate is unbiased, its mean
squared error is (D / L - 1) ||x||^2, and at L = D it is x.

Shape legend: M vectors (rows), R streams of draws (M, or 1 that all rows share), D entries, L directions, n entries of
a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.compressor.projections.directions import Source, tree_sum, width


@dataclass(frozen=True)
class Orthonormal:
    """An orthonormal basis of the span of L Gaussian vectors; L <= D.

    Attributes:
        num: L.
    """

    num: int

    def project(self, x: Tensor, source: Source) -> Tensor:
        inner = x.new_zeros(x.shape[0], self.num, dtype=torch.float64)
        gram = inner.new_zeros(source.numbers.shape[0], self.num, self.num)
        for part, stream, v in self._draws(source, x.shape[1]):
            gram[stream] += v @ v.t()
            for row in [stream] if len(gram) > 1 else range(len(x)):
                inner[row] += tree_sum(x[row, part].to(torch.float64) * v, 1)
        basis = _cholesky(gram).expand(len(x), -1, -1)
        return _solve(basis, inner)

    def blocks(self, scalars: Tensor, source: Source, dim: int) -> Iterator[tuple[slice, Tensor]]:
        gram = scalars.new_zeros(source.numbers.shape[0], self.num, self.num)
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
            for stream in range(source.numbers.shape[0]):
                own = Source(source.key, source.numbers[stream : stream + 1])
                draws = own.draw("gaussian", self.num * wide, block * self.num * wide).view(self.num, wide)
                yield part, stream, draws[:, : part.stop - first].to(torch.float64)


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
