"""PermK: a random permutation deals the entries out, so that every entry is sent by exactly one sender.

R. Szlendak, A. Tyurin, P. Richtárik, "Permutation compressors for provably faster distributed nonconvex
optimization", ICLR 2022, definitions 2 and 3. All senders draw the same permutation from the round's key (which the
server chooses, so that it costs nothing), and each takes its part, n times as large: the parts' mean is exact if all
vectors are equal. Where D is no multiple of n the paper pads; here some parts are one entry longer, and which sender
has them is drawn too, so that every entry is with every sender with probability 1 / n. With more senders than entries
each sends one, D times as large, and every entry is sent by n / D senders, rounded down or up.

Shape legend: M senders at hand, n senders in all, D entries.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.compressor.contract import Codec
from fedcomp.core.rows import scatter_distinct_
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float


@dataclass(frozen=True)
class PermK(Codec):
    """Sends D / n entries, each times min(n, D); unbiased. Has no options: the number of senders decides."""

    unbiased = True

    def omega(self, layers: tuple[int, ...], num_senders: int) -> float:
        """min(n, D) - 1, with equality for every vector if every entry is with every sender as likely."""
        return float(min(num_senders, sum(layers)) - 1)

    def omega_of_mean(self, layers: tuple[int, ...], num_senders: int) -> float:
        """1: the error is mean ||x_i||^2 - ||mean x_i||^2, 0 where all vectors are equal."""
        return 1.0

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """The entries of the sender's part, in the order of the permutation."""
        indices, count = self._part(common)
        inside = torch.arange(indices.shape[1], device=x.device) < count[:, None]
        values = x.gather(1, indices).masked_fill_(~inside, 0.0)
        return Payload({"values": Field(values, Float(), count, count_known=True)}, paper_bits=32 * indices.shape[1])

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        indices, count = self._part(common)
        values = payload.expect(values=indices.shape[1])[0] * float(min(common.everybody.shape[0], common.dim))
        beyond = torch.arange(indices.shape[1], device=indices.device) >= count[:, None]
        out = values.new_zeros(values.shape[0], common.dim + 1)
        return scatter_distinct_(out, indices.masked_fill(beyond, common.dim), values)[:, : common.dim]

    def _part(self, common: SharedKnowledge) -> tuple[Tensor, Tensor]:
        """(indices [M, ceil(D / n)], how many of them are the sender's [M]); for n > D one each."""
        everybody, dim = common.everybody, common.dim
        num, one = everybody.shape[0], common.ids.new_zeros(1)
        entries = common.key.fold_in("entries").bits(one, dim)[0].argsort(stable=True)
        turns = common.key.fold_in("senders").bits(one, num)[0].argsort(stable=True)
        turn = turns[torch.searchsorted(everybody, common.ids)]  # [M] this sender's turn in 0..n-1
        if num > dim:
            return entries[turn % dim][:, None], torch.ones_like(turn)
        short, longer = divmod(dim, max(num, 1))
        first = turn * short + turn.clamp(max=longer)
        offset = torch.arange(short + (longer > 0), device=first.device)
        return entries[(first[:, None] + offset).clamp_(max=dim - 1)], short + (turn < longer).to(torch.int64)
