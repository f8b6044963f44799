"""Importance sampling: entry j is sent with a probability in proportion to |x_j|, k of them on average.

J. Wangni, J. Wang, J. Liu, T. Zhang, "Gradient sparsification for communication-efficient distributed optimization",
NeurIPS 2018: p_j = min(lambda |x_j|, 1) with sum p_j = k minimises the error E sum x_j^2 / p_j at that length. That
paper scales the unsaturated ones repeatedly until none exceeds 1; here lambda is solved for exactly from the largest k
entries. What is sent is x_j / p_j, which for an unsaturated entry is sign(x_j) / lambda.

Which entries are sent depends on the data, so their indices travel, and how many there are. Shape legend: M senders,
D entries, k expected number of entries sent.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedcomp.compressor.sparsifiers.num_kept import Sparsifier
from fedcomp.compressor.sparsifiers.sparse_indices import compact
from fedcomp.core.rows import scatter_distinct_
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Ascending, Float, Unsigned


@dataclass(frozen=True)
class Wangni(Sparsifier):
    """Sends x_j / p_j with probability p_j; unbiased, never worse than Rand-k, with messages of varying length.

    Attributes:
        values: float, 32 bits each; sign, one bit each beside the one float 1 / lambda, and the saturated ones as
            floats.
    """

    values: Literal["float", "sign"] = "float"
    unbiased = True

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """Places and values of the entries that were drawn; with values=sign in two groups and 1 / lambda."""
        step = self._step(x)[:, None]
        saturated = x.abs() >= step  # p = 1, of zeros only where every entry is sent
        probability = (x.abs() / step).masked_fill(saturated, 1.0)
        sent = (sender_key.uniform(common.ids, common.dim) < probability) & (x != 0)
        paper = 32 * self.num_sent(common.dim)
        if self.values == "float":
            value = torch.where(saturated, x, torch.copysign(step, x))
            return Payload(_group("sent", sent, value, Float()), paper_bits=paper)
        few, many = sent & saturated, sent & ~saturated
        fields = {"step": Field(step, Float())}
        fields |= _group("saturated", few, x, Float())
        fields |= _group("signed", many, (x > 0).to(torch.uint8), Unsigned(1))
        return Payload(fields, paper_bits=paper)

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        dim = common.dim
        if self.values == "float":
            _, values = payload.expect(sent_places=dim, sent_values=dim)
            return _scatter(payload, "sent", values, dim)
        names = ("saturated_places", "saturated_values", "signed_places", "signed_values")
        step, _, large, _, positive = payload.expect(step=1, **dict.fromkeys(names, dim))
        signs = positive.to(torch.float32).mul_(2.0).sub_(1.0)
        return _scatter(payload, "signed", signs * step, dim) + _scatter(payload, "saturated", large, dim)

    def expected_error(self, x: Tensor) -> Tensor:
        """[M] float64 E||C(x) - x||^2 of each row: sum x_j^2 (1 / p_j - 1) = sum |x_j| max(1 / lambda - |x_j|, 0)."""
        size = x.double().abs()
        return (size * (self._step(x).double()[:, None] - size).clamp(min=0)).sum(1)

    def _step(self, x: Tensor) -> Tensor:
        """[M] 1 / lambda, the value that stands for every unsaturated entry; 0 where all are sent as they are.

        If the m largest are saturated, 1 / lambda = (sum of the others) / (k - m), and m is the smallest number for
        which the next entry stays below it.
        """
        k = self.num_sent(x.shape[1])
        size = x.abs()
        largest = size.topk(k, dim=1).values
        before = torch.cumsum(largest, 1, dtype=torch.float64) - largest  # sum of the m largest, m = 0..k-1
        others = (size.sum(1, dtype=torch.float64)[:, None] - before).clamp_(min=0)
        step = others / torch.arange(k, 0, -1, device=x.device)
        fits = largest <= step
        first = fits.to(torch.uint8).argmax(1, keepdim=True)
        chosen = step.gather(1, first).squeeze(1).to(torch.float32)
        return torch.where(fits.any(1), chosen, torch.zeros_like(chosen))


def _group(name: str, sent: Tensor, values: Tensor, coding: Float | Unsigned) -> dict[str, Field]:
    """Places and values of the entries under the mask `sent` [M, D], each with their number in front."""
    dim, count = sent.shape[1], sent.sum(1)
    every = torch.arange(dim, device=sent.device).expand(sent.shape)
    return {
        f"{name}_places": Field(compact(every, sent), Ascending(dim), count),
        f"{name}_values": Field(compact(values, sent), coding, count),
    }


def _scatter(payload: Payload, name: str, values: Tensor, dim: int) -> Tensor:
    """[M, D]: values [M, D] of a group at its indices; those beyond the group's number are not there."""
    indices, count = payload.fields[f"{name}_places"].data, payload.fields[f"{name}_places"].count
    assert count is not None
    beyond = torch.arange(dim, device=values.device) >= count[:, None]
    out = values.new_zeros(values.shape[0], dim + 1)
    return scatter_distinct_(out, indices.masked_fill(beyond, dim), values)[:, :dim]
