"""The candidates of minimal random coding: random bits that both ends compute when needed and never store.

Each bit is a function of its indices. The uniform number of b bits for coordinate e of candidate i in repetition l is a
part of one Philox4x32-10 block,

    u(l, i, e) = part e mod 2^s of Philox(key; counter = (e >> s, i, l, domain)),  s = 4, 3, 2 for b = 8, 16, 32,

with parts counted from the low end of the first word. The candidate has a one where u < T, so with probability exactly
T / 2^b. e is the coordinate in the whole vector, so no bit depends on the blocks, the order of calls, threads or
device.

Shape legend: S streams and P priors (1 shared by all senders, or M), M senders, K = n_IS candidates, n coordinates.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fedcomp.compressor.mrc.blocks import Blocks
from fedcomp.random.keys import Key
from fedcomp.random.philox import philox_torch

BITS = (8, 16, 32)
"""Widths of a uniform number. A narrow one adds no bias; it only rounds the prior to T / 2^b."""
CandidateSource = Literal["shared", "per_client"]
"""shared: all senders choose among the same candidates; per_client: each sender has its own."""
UPLINK, DOWNLINK, NOISE = 0, 1, 2
"""Domains of the counter. NOISE is the encoder's private randomness, which no decoder uses."""


@dataclass(frozen=True)
class Candidates:
    """The set of candidates that an encoder chooses from.

    Attributes:
        keys: [S, 2] int64 words of 32 bits: Philox' key of each stream.
        num: n_IS, candidates per block. bits: b of a uniform number. domain: 0 uplink, 1 downlink.
    """

    keys: Tensor
    num: int
    bits: int = 8
    domain: int = UPLINK

    @property
    def index_type(self) -> torch.dtype:
        """The narrowest type that holds a candidate's index."""
        return torch.uint8 if self.num <= 1 << 8 else torch.int32


@dataclass(frozen=True)
class Prior:
    """What both ends know of a vector before its message: the candidates, and with what probability each bit is one.

    Attributes:
        thresholds: [P, n] integers, T / 2^b. blocks: of these n coordinates. candidates: to choose from.
    """

    thresholds: Tensor
    blocks: Blocks
    candidates: Candidates

    def columns(self, some: Blocks) -> slice:
        """Where some of the blocks lie among the coordinates."""
        return slice(some.begin - self.blocks.begin, some.end - self.blocks.begin)

    def of(self, some: Blocks) -> "Prior":
        """That of some of the blocks."""
        return replace(self, thresholds=self.thresholds[:, self.columns(some)], blocks=some)

    def of_row(self, row: int) -> tuple[Tensor, Tensor]:
        """(key [2] of its stream, thresholds [n]) of a sender; those of one for all are every sender's."""
        keys, thresholds = self.candidates.keys, self.thresholds
        return keys[row % len(keys)], thresholds[row % len(thresholds)]


def streams(source: str, key: Key, ids: Tensor) -> Tensor:
    """[S, 2] int64 keys on the device of ids [M]: stream 0 for all senders, or stream 1 + i for sender i."""
    return key.bits(ids.new_zeros(1) if source == "shared" else ids + 1, 2)


def group_size(bits: int) -> int:
    """2^s: coordinates per Philox block."""
    return 128 // bits


def uniform(keys: Tensor, candidates: Candidates, repetition: int, number: Tensor, coordinate: Tensor) -> Tensor:
    """u(l, i, e) int64 for candidates `number` and coordinates, which broadcast; keys [2, ...] do too."""
    size, each = group_size(candidates.bits), 32 // candidates.bits
    number, coordinate = torch.broadcast_tensors(number, coordinate)
    fixed = [torch.full_like(number, value) for value in (repetition, candidates.domain)]
    words = philox_torch(keys, torch.stack((coordinate // size, number, *fixed)))
    part = coordinate % size
    word = words.gather(0, (part // each)[None])[0]
    return (word >> (part % each * candidates.bits)) & ((1 << candidates.bits) - 1)


def stretch(keys: Tensor, candidates: Candidates, repetition: int, begin: int, end: int) -> Tensor:
    """[K, n] int64 u(l, i, e) of all candidates and begin <= e < end, for one stream's keys [2]."""
    size, each = group_size(candidates.bits), 32 // candidates.bits
    first = begin // size
    groups = torch.arange(first, -(-end // size), device=keys.device)
    counter = groups.new_empty(4, candidates.num, len(groups))
    counter[0], counter[1] = groups, torch.arange(candidates.num, device=keys.device)[:, None]
    counter[2], counter[3] = repetition, candidates.domain
    words = philox_torch(keys[:, None, None], counter).permute(1, 2, 0)
    parts = words[..., None] >> (torch.arange(each, device=keys.device) * candidates.bits)
    numbers = (parts & ((1 << candidates.bits) - 1)).reshape(candidates.num, -1)
    return numbers[:, begin - first * size : end - first * size]
