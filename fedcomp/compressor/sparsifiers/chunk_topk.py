"""Top-k within chunks of every tensor, with values as floats or in two bits, as SparseLoCo sends them.

A. Sarfi, B. Therien, J. Lidin, E. Belilovsky, "Communication efficient LLM pre-training with SparseLoCo",
arXiv:2508.15706. Every chunk of 4096 entries sends its k largest, so that positions cost 12 bits each at most; with
error feedback of decay 0.95 (`{_target_:fedcomp.compressor.feedback.ErrorFeedback,decay:0.95}`), AdamW at
the clients and a plain step at the server it is the paper's method, with the mean over all clients (the authors'
programs take it over those that sent an entry).

Values are floats, or a sign and one of two magnitudes a tensor, the best two for the magnitudes that are sent
(2-means). The authors' quantiser spreads its four values over 6 standard deviations around the mean of values that lie
on both sides of zero, so that two of the four are hardly used and, with heavy tails, signs are lost; it is not offered.
Chunks are runs of a tensor's memory, the last one shorter (theirs are squares of 64 x 64 of a matrix). A chunk of c
entries sends max(1, round(fraction * c)).

Shape legend: M senders, D entries, L tensors, K entries sent.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from fedcomp.compressor.contract import Codec
from fedcomp.compressor.sparsifiers.num_kept import num_kept
from fedcomp.compressor.sparsifiers.sparse_indices import index_field, max_bits, read_indices
from fedcomp.compressor.sparsifiers.topk import stable_topk
from fedcomp.core.ranges import Whole, Within
from fedcomp.core.rows import scatter_distinct_
from fedcomp.core.to_device import to_device
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float, Unsigned, bits_for


@dataclass(frozen=True)
class ChunkTopK(Codec):
    """Keeps the largest entries of each chunk; biased, contractive.

    Attributes:
        values: float, or two_magnitudes (2 bits each, and 64 bits a tensor).
        positions: index, ceil(log2 chunk) bits each; rice, Golomb-Rice codes of the gaps; auto, the shorter at worst.
    """

    fraction: Annotated[float, Within("(0, 1]", "the share of entries that is sent")] = 0.01
    chunk: Annotated[int, Whole()] = 4096
    values: Literal["float", "two_magnitudes"] = "two_magnitudes"
    positions: Literal["auto", "index", "rice"] = "auto"
    contractive = True

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """The values in the order of their positions, and the positions."""
        positions = self._positions(x, common.layers)
        kept, starts = x.gather(1, positions), self._starts(common.layers, x.device)
        if self._code(common.layers) == "index":
            fields = {"index": Field(positions - starts, self._coding(common.layers))}
        else:
            fields = index_field("rice", positions, common.dim)
        if self.values == "float":
            return Payload({"values": Field(kept, Float()), **fields})
        codes, magnitudes = two_magnitudes(kept, self._counts(common.layers))
        sent = {"codes": Field(codes, Unsigned(2)), "magnitudes": Field(magnitudes, Float())}
        return Payload({**sent, **fields})

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        counts = self._counts(common.layers)
        code, num = self._code(common.layers), sum(counts)
        where = {"index": num} if code == "index" else {"gaps": num}
        if self.values == "float":
            values, data = payload.expect(values=num, **where)
        else:
            codes, magnitudes, data = payload.expect(codes=num, magnitudes=2 * len(counts), **where)
            values = from_two_magnitudes(codes, magnitudes, counts)
        if code == "index":
            positions = data.to(torch.int64) + self._starts(common.layers, data.device)
        else:
            positions = read_indices("rice", data, num)
        return scatter_distinct_(values.new_zeros(values.shape[0], common.dim), positions, values)

    def _positions(self, x: Tensor, layers: tuple[int, ...]) -> Tensor:
        """[M, K] ascending, the largest entries of each chunk of x [M, D]."""
        parts, first = [], 0
        for size in layers:
            for num, width in _runs(size, self.chunk):
                block = x[:, first : first + num * width].abs().reshape(-1, width)
                kept = num_kept(self.fraction, width)
                local = stable_topk(block, kept).view(len(x), num, kept)
                starts = first + width * torch.arange(num, device=x.device)
                parts.append((local + starts[:, None]).flatten(1))
                first += num * width
        return torch.cat(parts, 1)

    def _counts(self, layers: tuple[int, ...]) -> list[int]:
        """Entries that each tensor sends."""
        return [sum(num * num_kept(self.fraction, width) for num, width in _runs(size, self.chunk)) for size in layers]

    def _starts(self, layers: tuple[int, ...], device: torch.device) -> Tensor:
        """[K] where the chunk of each entry sent begins."""
        return to_device(_chunk_starts(layers, self.chunk, self.fraction), device)

    def _coding(self, layers: tuple[int, ...]) -> Unsigned:
        """Of positions within their chunks, of which a tensor's last one may be shorter."""
        return Unsigned(self._width(layers), limits=_chunk_widths(layers, self.chunk, self.fraction))

    def _width(self, layers: tuple[int, ...]) -> int:
        return bits_for(min(self.chunk, max(layers)))

    def _code(self, layers: tuple[int, ...]) -> str:
        if self.positions != "auto":
            return self.positions
        num = sum(self._counts(layers))
        return "index" if num * self._width(layers) <= max_bits("rice", num, sum(layers)) else "rice"


def _runs(size: int, chunk: int) -> list[tuple[int, int]]:
    """(number, width) of the chunks of a tensor: whole ones, and what is left."""
    whole, left = divmod(size, chunk)
    return [run for run in ((whole, chunk), (1, left)) if run[0] and run[1]]


@lru_cache(maxsize=16)
def _chunk_starts(layers: tuple[int, ...], chunk: int, fraction: float) -> np.ndarray:
    starts, first = [], 0
    for size in layers:
        for num, width in _runs(size, chunk):
            begin = first + width * np.arange(num, dtype=np.int64)
            starts.append(np.repeat(begin, num_kept(fraction, width)))
            first += num * width
    return np.concatenate(starts)


@lru_cache(maxsize=16)
def _chunk_widths(layers: tuple[int, ...], chunk: int, fraction: float) -> tuple[int, ...]:
    """The width of the chunk of each entry sent."""
    runs = [run for size in layers for run in _runs(size, chunk)]
    return tuple(width for num, width in runs for _ in range(num * num_kept(fraction, width)))


def two_magnitudes(values: Tensor, counts: list[int]) -> tuple[Tensor, Tensor]:
    """(codes [M, K], magnitudes [M, 2 L]) of values [M, K], `counts` of them in each of L tensors.

    A code is 2 for values below zero, plus 1 for the larger magnitude of the tensor. The split of the sorted
    magnitudes has the least squared error, and a magnitude is the mean of its part.
    """
    codes, magnitudes = torch.empty_like(values, dtype=torch.uint8), []
    for part, out in zip(values.split(counts, 1), codes.split(counts, 1), strict=True):
        size, num = part.abs(), part.shape[1]
        ordered = size.sort(dim=1, descending=True).values
        sums = ordered.double().cumsum(1)
        upper = torch.arange(1, num + 1, dtype=torch.float64, device=part.device)
        rest = sums[:, -1:] - sums
        best = (sums.square() / upper + rest.square() / (num - upper).clamp(min=1)).argmax(1, keepdim=True)
        high = sums.gather(1, best) / (best + 1)
        low = rest.gather(1, best) / (num - 1 - best).clamp(min=1)
        out.copy_(2 * (part < 0) + (size >= ordered.gather(1, best)))
        magnitudes += [high, low]
    return codes, torch.cat(magnitudes, 1).to(values.dtype)


def from_two_magnitudes(codes: Tensor, magnitudes: Tensor, counts: list[int]) -> Tensor:
    """[M, K] the values that codes and magnitudes say."""
    values = []
    for part, (high, low) in zip(
        codes.split(counts, 1), magnitudes.view(len(codes), len(counts), 2).permute(1, 2, 0), strict=True
    ):
        size = torch.where(part % 2 == 1, high[:, None], low[:, None])
        values.append(torch.where(part >= 2, -size, size))
    return torch.cat(values, 1)
