"""Top-k sparsification: the k entries of largest magnitude, with their places really sent.

D. Alistarh et al., "The convergence of sparsified gradient methods", NeurIPS 2018; S. Stich, J.-B. Cordonnier,
M. Jaggi, "Sparsified SGD with memory", NeurIPS 2018. The FedMRN paper counts 32 k bits and "ignores sparse encoding";
here the places are sent in the cheapest of three codes, chosen from k and D alone and so known to both ends:

    index   ceil(log2 D) bits each
    bitmap  one bit for every entry of the vector
    rice    Golomb-Rice codes of the gaps between places

Shape legend: M senders, D entries, k entries sent.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.compressor.check import check_choice, check_fraction
from fedcomp.keys import Key
from fedcomp.wire import Common, Field, Payload
from fedcomp.wire.coding import Ascending, Bitmap, Float, Rice, bits_for

POSITIONS = ("auto", "index", "bitmap", "rice")


@dataclass(frozen=True)
class TopK:
    """Keeps the k = max(1, round(fraction * D)) largest entries; biased, contractive with delta = k / D.

    Attributes:
        fraction: share of entries sent, in (0, 1].
        positions: how places are written; auto takes the code whose worst case is shortest.
    """

    fraction: float = 0.03
    positions: str = "auto"
    unbiased: bool = False
    contractive: bool = True
    faithful: bool = False

    def __post_init__(self) -> None:
        check_fraction("compressor.fraction", self.fraction)
        check_choice("compressor.positions", self.positions, POSITIONS)

    def num_sent(self, dim: int) -> int:
        """k for a vector of `dim` entries."""
        return max(1, round(self.fraction * dim))

    def position_code(self, dim: int) -> str:
        """The code of the places: as configured, or the one with the shortest worst case for this k and D."""
        if self.positions != "auto":
            return self.positions
        k = self.num_sent(dim)
        worst = {"index": k * bits_for(dim), "bitmap": dim, "rice": Rice.for_gaps(k, dim).worst_case(k, dim)}
        return min(worst, key=lambda code: worst[code])

    def encode(self, x: Tensor, common: Common, coin: Key) -> Payload:
        """The k values in the order of their places, then the places."""
        k, code = self.num_sent(common.dim), self.position_code(common.dim)
        index = x.abs().topk(k, dim=1, sorted=False).indices.sort(dim=1).values
        fields = {"values": Field(x.gather(1, index), Float())}
        if code == "index":
            fields["index"] = Field(index, Ascending(common.dim))
        elif code == "bitmap":
            chosen = torch.zeros_like(x, dtype=torch.uint8).scatter_(1, index, 1)
            fields["bitmap"] = Field(chosen, Bitmap(k))
        else:
            gaps = torch.diff(index, dim=1, prepend=torch.full_like(index[:, :1], -1)) - 1
            fields["gaps"] = Field(gaps, Rice.for_gaps(k, common.dim))
        return Payload(fields, paper_bits=32 * k)

    def support(self, payload: Payload, common: Common) -> Tensor:
        """[M, k] places of the values sent, ascending."""
        return self._read(payload, common)[1]

    def decode(self, payload: Payload, common: Common) -> Tensor:
        """The values at their places, zero elsewhere."""
        values, support = self._read(payload, common)
        return values.new_zeros(values.shape[0], common.dim).scatter_(1, support, values)

    def _read(self, payload: Payload, common: Common) -> tuple[Tensor, Tensor]:
        """(values, their places), both [M, k]."""
        k, code = self.num_sent(common.dim), self.position_code(common.dim)
        if code == "index":
            values, index = payload.expect(values=k, index=k)
            return values, index
        if code == "rice":
            values, gaps = payload.expect(values=k, gaps=k)
            return values, (gaps + 1).cumsum(1) - 1
        values, bitmap = payload.expect(values=k, bitmap=common.dim)
        # Places of a bitmap without asking the device how many there are: a stable sort puts the ones first, in order.
        return values, bitmap.sort(dim=1, descending=True, stable=True).indices[:, :k]
