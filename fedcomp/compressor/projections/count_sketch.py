"""A count sketch: every entry is added, with a random sign, to one cell of each of r short rows.

M. Charikar, K. Chen, M. Farach-Colton, "Finding frequent items in data streams", ICALP 2002; as FetchSGD sends it, D.
Rothchild et al., ICML 2020 (arXiv:2007.07682). S(x)[j, b] = sum over h_j(i) = b of s_j(i) x_i is linear in x, and the
estimate of x_i is the median over rows j of s_j(i) S[j, h_j(i)], unbiased for odd r. (Of an even number of rows
torch.median takes the lower of two, biased by 0.29 ||x|| / sqrt(c) for r = 4, as the authors' program does.) The median
is not linear: a sum of messages is the message of the sum, but its estimate is not the sum of the estimates.

Hashes are the same for all senders of a message. By themselves they are of the round; a method whose sketches live on
(`algorithm/fetchsgd.py`) gives a seed of the run as `SharedKnowledge.seed`. They cost no bits. The program's hashes are
polynomials modulo 2^61 - 1 in int64, where products overflow; here they are Philox words.

Shape legend: M senders, D entries, r rows, c columns.
"""

import logging
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedcomp.compressor.contract import Codec
from fedcomp.compressor.sparsifiers.topk import stable_topk
from fedcomp.core.ranges import Whole, Within
from fedcomp.core.rows import scatter_distinct_
from fedcomp.core.validate import OptionError, is_whole
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float

log = logging.getLogger("fedcomp")


@dataclass(frozen=True)
class CountSketch(Codec):
    """Sends the r c cells of a sketch, decoded to the estimates of all entries, or of the k largest.

    Attributes:
        rows, columns: r and c; a `fraction` makes c = max(2, round(fraction * D / r)).
    """

    rows: int = 5
    columns: Annotated[int | None, Whole(2)] = None
    fraction: Annotated[float, Within("(0, 1]", "the share of entries that is sent")] = 0.1
    k: Annotated[int | None, Whole()] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_whole(self.rows) or self.rows < 1 or self.rows % 2 == 0:
            raise OptionError(
                f"rows={self.rows} must be an odd number, 1 or more: the median of an even number of rows is biased"
            )

    @property
    def unbiased(self) -> bool:
        """Whether every entry is decoded to its estimate."""
        return self.k is None

    def check_dim(self, dim: int) -> None:
        """Raise ValueError if k > D; warn if the sketch has as many cells as the vector entries."""
        if self.k is not None and self.k > dim:
            raise OptionError(f"k={self.k} is more than the D = {dim} entries of the vector")
        if self.rows * self.num_columns(dim) >= dim:
            cells = f"{self.rows} x {self.num_columns(dim)}"
            log.warning("a sketch of %s cells for %d entries compresses nothing: lower columns", cells, dim)

    def num_columns(self, dim: int) -> int:
        """c for a vector of `dim` entries."""
        return max(2, round(self.fraction * dim / self.rows)) if self.columns is None else self.columns

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """The cells [M, r c], row by row."""
        return Payload({"cells": Field(self.sketch(x, common), Float())})

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """[M, D] the estimates, or the k largest of them and zeros."""
        (cells,) = payload.expect(cells=self.rows * self.num_columns(common.dim))
        estimates = self.estimates(cells, common)
        if self.k is None:
            return estimates
        positions = stable_topk(estimates.abs(), self.k)
        return scatter_distinct_(torch.zeros_like(estimates), positions, estimates.gather(1, positions))

    def sketch(self, x: Tensor, common: SharedKnowledge) -> Tensor:
        """[M, r c] S(x), row by row."""
        columns = self.num_columns(common.dim)
        cells = x.new_zeros(x.shape[0], self.rows, columns)
        for row in range(self.rows):
            buckets, signs = self._hashes(row, columns, common)
            cells[:, row].scatter_add_(1, buckets.expand_as(x), x * signs)
        return cells.flatten(1)

    def estimates(self, cells: Tensor, common: SharedKnowledge) -> Tensor:
        """[M, D] the medians over rows."""
        columns = self.num_columns(common.dim)
        own = []
        for row, part in enumerate(cells.view(-1, self.rows, columns).unbind(1)):
            buckets, signs = self._hashes(row, columns, common)
            own.append(part.index_select(1, buckets) * signs)
        # The lower median, as torch's: of that, torch says on a GPU that its indices are not deterministic.
        return torch.stack(own).sort(0).values[(self.rows - 1) // 2]

    def touched(self, positions: Tensor, common: SharedKnowledge) -> Tensor:
        """[r c] bool: the cells that entries `positions` [k] are added to."""
        columns = self.num_columns(common.dim)
        found = torch.zeros(self.rows, columns, dtype=torch.bool, device=positions.device)
        for row in range(self.rows):
            found[row].index_fill_(0, self._hashes(row, columns, common)[0].index_select(0, positions), True)
        return found.flatten()

    def _hashes(self, row: int, columns: int, common: SharedKnowledge) -> tuple[Tensor, Tensor]:
        """(buckets [D] int64, signs [D] float32) of a row."""
        key, ids = common.key.fold_in("sketch"), common.ids.new_zeros(1)
        if common.seed is not None:
            key, ids = Key(("seed", "sketch")), common.seed[:1]
        words = key.fold_in("bucket", row).bits(ids, common.dim)[0]
        return (words * columns) >> 32, key.fold_in("sign", row).rademacher(ids, common.dim)[0]
