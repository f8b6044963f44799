"""Binary fuse filters: a set of positions of a vector, with false positives at a rate of 2^-f.

A large set takes about 1.13 f bits a position with 3 cells a position, and 1.08 f with 4.

T. M. Graf, D. Lemire, "Binary fuse filters: fast and smaller than Xor filters", ACM J. Experimental Algorithmics 2022;
sizes as in `FastFilter/xor_singleheader`. A position has `arity` cells, one in each of as many adjacent segments, and
a fingerprint of f bits; the filter is built so that the XOR of a position's cells is its fingerprint. Whoever holds it
asks for every position; one that was not put in answers yes with probability 2^-f. Cells and fingerprints follow from a
key that both ends have, the number of the try and the position, so that nothing but that number is sent for them.

Building goes position by position, and so do messages: on a GPU both read from it.

Shape legend: M senders, d positions of a vector, n of them in the set, A cells.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from fedcomp.core.ranges import CheckedOptions
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Unsigned
from fedcomp.wire.coding.contract import WireError

Fingerprint = Literal[4, 8, 12, 16]
Arity = Annotated[Literal[3, 4], "the cells of a position"]
MOST_TRIES = 255
WORDS = 4
"""Random words of a position: its first cell, and bits for the others and the fingerprint."""


@dataclass(frozen=True)
class FuseFilter(CheckedOptions):
    """Sends sets of positions; `fingerprint` is f."""

    fingerprint: Fingerprint = 8
    arity: Arity = 4
    prefix = "algorithm."

    def size(self, num: int) -> tuple[int, int, int]:
        """(length of a segment, segments that a first cell lies in, cells A) for n positions; A = 0 for none."""
        if not num:
            return 0, 0, 0
        three = self.arity == 3
        exponent = math.log(num) / math.log(3.33) + 2.25 if three else math.log(num) / math.log(2.91) - 0.5
        length = min(max(4, 2 ** max(0, math.floor(exponent))), 262_144)
        capacity = 0
        if num > 1:
            least, at_a_million = (
                (1.125, 0.875 + 0.25 * math.log(1e6) / math.log(num))
                if three
                else (1.075, 0.77 + 0.305 * math.log(6e5) / math.log(num))
            )
            capacity = round(num * max(least, at_a_million))
        segments = max(1, -(-capacity // length) - (self.arity - 1))
        return length, segments, (segments + self.arity - 1) * length

    def bits(self, num: int) -> int:
        """Of the message of n positions: 40 + f A."""
        return 40 + self.fingerprint * self.size(num)[2]

    def encode(self, sets: Tensor, ids: Tensor, key: Key) -> Payload:
        """Messages of sets [M, d] bool from the senders `ids` [M]; `key`: both ends have it.

        Raises ValueError: none of the 256 tries could be built, which does not happen by chance.
        """
        rows = [
            self._build(row.nonzero()[:, 0].cpu(), ids[position : position + 1], key)
            for position, row in enumerate(sets)
        ]
        nums, tries = (torch.tensor([[one[part]] for one in rows], device=sets.device) for part in (0, 1))
        counts = torch.tensor([len(one[2]) for one in rows])
        cells = torch.zeros(len(rows), max(1, int(counts.max())), dtype=torch.int64)
        for position, (_, _, own) in enumerate(rows):
            cells[position, : len(own)] = torch.from_numpy(own)
        return Payload(
            {
                "keys": Field(nums, Unsigned(32)),
                "tries": Field(tries, Unsigned(8)),
                "cells": Field(
                    cells.to(sets.device),
                    Unsigned(self.fingerprint),
                    counts.to(sets.device),
                    count_known=True,
                    count_from=self._num_cells,
                ),
            }
        )

    def _num_cells(self, row: Mapping[str, Tensor]) -> int:
        """A, which follows from the number of positions that the message begins with."""
        return self.size(int(row["keys"].sum()))[2]

    def decode(self, payload: Payload, ids: Tensor, key: Key, dim: int) -> Tensor:
        """[M, d] bool: the positions that each filter says yes to.

        Raises WireError: more positions than the vector has, a number of cells that is not theirs, another field.
        """
        *both, cells = payload.expect(keys=1, tries=1, cells=None)
        (nums, tries), count = (one[:, 0].tolist() for one in both), payload.fields["cells"].count
        given = [cells.shape[1]] * len(cells) if count is None else count.tolist()
        found = torch.zeros(len(cells), dim, dtype=torch.bool, device=cells.device)
        for row, (num, number) in enumerate(zip(nums, tries, strict=True)):
            wanted = self.size(num)[2]
            if num > dim or given[row] != wanted or number > MOST_TRIES:
                raise WireError(
                    f"a filter of {num} positions of {dim} at try {number} has {wanted} cells, this one {given[row]}: "
                    "it is damaged, or was made for another vector or by another codec"
                )
            if num:
                positions, prints = self._cells(ids[row : row + 1], dim, num, key.fold_in(number))
                found[row] = _xor(cells[row], positions) == prints
        return found

    def _build(self, positions: Tensor, sender: Tensor, key: Key) -> tuple[int, int, np.ndarray]:
        """(n, the number of the try, cells [A])."""
        num = len(positions)
        if not num:
            return 0, 0, np.zeros(0, np.int64)
        from fedcomp.compressor.fuse_filter_numba import peel

        out = np.zeros(self.size(num)[2], np.int64)
        dim = int(positions[-1]) + 1
        for number in range(MOST_TRIES + 1):
            cells, prints = self._cells(sender.cpu(), dim, num, key.fold_in(number))
            if peel(cells[positions].numpy(), prints[positions].numpy(), out):
                return num, number, out
        raise ValueError(
            f"no filter of {num} positions could be built in {MOST_TRIES + 1} tries: algorithm.arity=3 or 4"
        )

    def _cells(self, sender: Tensor, dim: int, num: int, key: Key) -> tuple[Tensor, Tensor]:
        """Cells [d, arity] and fingerprints [d] of the first d positions, in a filter of n."""
        length, segments, _ = self.size(num)
        words = key.bits(sender, WORDS * dim).view(dim, WORDS)
        first = (words[:, 0] * (segments * length)) >> 32
        others = [
            (first + position * length) ^ (words[:, position] & (length - 1)) for position in range(1, self.arity)
        ]
        return torch.stack((first, *others), 1), words[:, 1] >> (32 - self.fingerprint)


def _xor(cells: Tensor, positions: Tensor) -> Tensor:
    """[d] the XOR of cells [A] at positions [d, arity]."""
    found = cells[positions[:, 0]]
    for position in positions[:, 1:].unbind(1):
        found = found ^ cells[position]
    return found
