"""Top-k sparsification: the k entries of largest magnitude, with their indices really sent.

D. Alistarh et al., "The convergence of sparsified gradient methods", NeurIPS 2018; S. Stich, J.-B. Cordonnier,
M. Jaggi, "Sparsified SGD with memory", NeurIPS 2018. The FedMRN paper counts 32 k bits and "ignores sparse encoding";
here the indices are sent too (sparse_indices.py), and k can be solved for so that the whole message keeps to a budget.

Shape legend: M senders, D entries, k entries sent.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from fedcomp.compressor.sparsifiers.num_kept import Sparsifier
from fedcomp.compressor.sparsifiers.sparse_indices import (
    IndexCode,
    index_code,
    index_field,
    index_layout,
    max_bits,
    read_indices,
)
from fedcomp.core.ranges import Within
from fedcomp.core.rows import count_along_rows, scatter_distinct_
from fedcomp.core.validate import OptionError
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float


@dataclass(frozen=True)
class TopK(Sparsifier):
    """Keeps the k largest entries, of equal ones the first; biased, contractive with delta = k / D.

    Attributes:
        positions: how indices are written; auto takes the code whose worst case is shortest.
        match_bits: indices included (SignSGD spends 1, FedMRN's Top-k 0.96 by its own count).
    """

    positions: IndexCode = "auto"
    match_bits: Annotated[float | None, Within("(0, inf)", "bits per parameter")] = None
    contractive = True

    @property
    def instead(self) -> dict[str, float | None]:
        return {"k": self.k, "match_bits": self.match_bits}

    def check_dim(self, dim: int) -> None:
        """Raise ValueError if k > D, or if not even one entry keeps to the budget."""
        super().check_dim(dim)
        if self.match_bits is not None and self._bits(1, dim) > self.match_bits * dim:
            raise OptionError(
                f"match_bits={self.match_bits} leaves {self.match_bits * dim:.0f} bits for {dim} entries; "
                f"one entry with its position takes {self._bits(1, dim)}"
            )

    def num_sent(self, dim: int) -> int:
        if self.match_bits is None:
            return super().num_sent(dim)
        low, high = 1, dim  # the worst case grows with k: the largest k within the budget by bisection
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._bits(middle, dim) <= self.match_bits * dim else (low, middle - 1)
        return low

    def index_code_of(self, dim: int) -> str:
        """The code of the indices for this k and D."""
        return index_code(self.positions, self.num_sent(dim), dim)

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """The k values in the order of their indices, then the indices."""
        k = self.num_sent(common.dim)
        indices = stable_topk(x.abs(), k)
        fields = {"values": Field(x.gather(1, indices), Float())}
        return Payload(fields | index_field(self.index_code_of(common.dim), indices, common.dim), paper_bits=32 * k)

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        k, code = self.num_sent(common.dim), self.index_code_of(common.dim)
        values, sent = payload.expect(values=k, **index_layout(code, k, common.dim))
        indices = read_indices(code, sent, k)
        return scatter_distinct_(values.new_zeros(values.shape[0], common.dim), indices, values)

    def _bits(self, k: int, dim: int) -> int:
        return 32 * k + max_bits(index_code(self.positions, k, dim), k, dim)


def stable_topk(size: Tensor, k: int) -> Tensor:
    """Positions [M, k], ascending, of the k largest of size [M, D]; of equal ones the first by position.

    Which of equal entries `torch.topk` takes is up to its kernel. So k + 1 are asked for: the least of them lie at the
    threshold, and are replaced by the first that lie there, but for one too many. On a CPU this is looked up only in
    rows that have several there; on a GPU all rows are, since finding them would synchronise.
    """
    num_rows, dim = size.shape
    if k == dim:
        return torch.arange(dim, device=size.device).expand(num_rows, -1).contiguous()
    values, indices = size.topk(k + 1, dim=1, sorted=False)
    threshold = values.amin(1, keepdim=True)
    least = values == threshold
    nth = count_along_rows(least, torch.int32)
    rows = np.flatnonzero(nth[:, -1].numpy() > 1) if size.device.type == "cpu" else slice(None)
    first = torch.searchsorted(count_along_rows(size[rows] == threshold[rows], torch.int32), nth[rows])
    indices[rows] = torch.where(least[rows], first, indices[rows])
    return indices.masked_fill_(least & (nth == nth[:, -1:]), dim).sort(dim=1).values[:, :k].contiguous()
