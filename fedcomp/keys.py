"""Randomness by name: a key says what a draw is for, and the draw follows from the name alone.

A `Key` is a path such as ("run", seed, round, "mask"). Nothing is consumed when it draws, so no draw depends on
order, chunk size, device count or a resume. Shape legend: M rows (clients), n draws a row.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcomp.philox import MASK, philox_numpy, philox_torch


@dataclass(frozen=True)
class Key:
    """The name of a source of randomness.

    Attributes:
        path: what the randomness is for, from the general to the particular.
    """

    path: tuple[int | str, ...] = ()

    def fold(self, *parts: int | str) -> Key:
        """A key further down the path: `key.fold("batch", 3)`."""
        return Key(self.path + parts)

    @property
    def seed(self) -> int:
        """64 bits of BLAKE2b over the path."""
        digest = hashlib.blake2b(repr(self.path).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little")

    def generator(self) -> torch.Generator:
        """A fresh CPU generator, for one-off draws on the host (a permutation, a model's first weights)."""
        return torch.Generator().manual_seed(self.seed >> 1)

    def words(self, ids_M: Tensor, num: int, start: int = 0) -> Tensor:
        """Random words, one row a client: word j of client i is Philox(key; counter = (j // 4, i)).

        Args:
            ids_M: [M] int64 client numbers; row i of the result depends on `ids_M[i]`, not on its place.
            num: n, draws a row; a longer row begins with the shorter one.
            start: first word, a multiple of 4: `words(ids, n)[:, s:]` is `words(ids, n - s, s)`, so that long rows can
                be drawn in blocks.
        Returns:
            [M, n] int64, uniform on [0, 2^32), on the device of `ids_M`.
        """
        assert start % 4 == 0, start
        seed, first, num_counters = self.seed, start // 4, -(-num // 4)
        key = (seed & MASK, seed >> 32)
        if ids_M.device.type == "cpu":
            return torch.from_numpy(_words_numpy(key, ids_M.numpy(), first, num_counters))[:, :num]
        counter = ids_M.new_zeros(4, ids_M.shape[0], num_counters)
        counter[0] = torch.arange(first, first + num_counters, device=ids_M.device)
        counter[2] = (ids_M & MASK)[:, None]
        counter[3] = ((ids_M >> 32) & MASK)[:, None]
        return philox_torch(key, counter).permute(1, 2, 0).reshape(ids_M.shape[0], 4 * num_counters)[:, :num]

    def uniform(self, ids_M: Tensor, num: int, start: int = 0) -> Tensor:
        """[M, n] float32 uniform on [0, 1) with 24 bits each, keyed as `words` are."""
        return (self.words(ids_M, num, start) >> 8).to(torch.float32) * 2.0**-24

    def signs(self, ids_M: Tensor, num: int, start: int = 0) -> Tensor:
        """[M, n] float32, -1 or +1 with probability 1/2: draw j is bit j % 32 of word j // 32 (0: -1).

        `start`, the first draw, is a multiple of 128.
        """
        assert start % 128 == 0, start
        words = self.words(ids_M, -(-num // 32), start // 32)
        bits = (words[:, :, None] >> torch.arange(32, device=words.device)) & 1
        return bits.flatten(1)[:, :num].to(torch.float32).mul_(2.0).sub_(1.0)

    def normal(self, ids_M: Tensor, num: int, start: int = 0) -> Tensor:
        """[M, n] float32 standard normal draws, by Box and Muller's transform of `words` in float64.

        Draws 2t and 2t + 1 are sqrt(-2 ln u) cos(2 pi v) and sqrt(-2 ln u) sin(2 pi v), u = (word 2t + 1/2) 2^-32 and
        v = word 2t+1 2^-32. `start` is a multiple of 4. Devices agree up to the last bit of a float32.
        """
        words = self.words(ids_M, num + num % 2, start).to(torch.float64)
        radius = torch.sqrt(-2.0 * torch.log((words[:, 0::2] + 0.5) * 2.0**-32))
        angle = words[:, 1::2] * (2.0 * math.pi * 2.0**-32)
        pairs = torch.stack((radius * torch.cos(angle), radius * torch.sin(angle)), 2)
        return pairs.flatten(1)[:, :num].to(torch.float32)

    def subset(self, ids_M: Tensor, num: int, out_of: int) -> Tensor:
        """[M, k] int64, ascending: a uniformly random k-subset of range(n), drawn for each row by itself.

        It is the places of the k smallest of n `words`; of equal ones the first.
        """
        assert 0 <= num <= out_of, (num, out_of)
        ranked = (self.words(ids_M, out_of) << 31) | torch.arange(out_of, device=ids_M.device)
        return (ranked.topk(num, dim=1, largest=False, sorted=False).values & 0x7FFFFFFF).sort(dim=1).values


def _words_numpy(key: tuple[int, int], ids_M: np.ndarray, first: int, num_counters: int) -> np.ndarray:
    """[M, 4 * num_counters] int64: the same words as on other devices, with numpy's cheaper calls."""
    counter = np.zeros((4, len(ids_M), num_counters), np.uint64)
    counter[0] = np.arange(first, first + num_counters)
    counter[2] = (ids_M & MASK)[:, None]
    counter[3] = ((ids_M >> 32) & MASK)[:, None]
    words = philox_numpy(key, counter).transpose(1, 2, 0)
    return words.reshape(len(ids_M), 4 * num_counters).view(np.int64)
