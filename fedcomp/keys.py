"""Randomness by name: a key says what a draw is for, and the draw follows from the name alone.

A `Key` is a path such as ("run", seed, round, "mask"). Nothing is consumed when it draws, so no draw depends on
order, chunk size, device count or a resume. Shape legend: M rows (clients), n draws a row.
"""

from __future__ import annotations

import hashlib
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

    def words(self, ids_M: Tensor, num: int) -> Tensor:
        """Random words, one row a client: word j of client i is Philox(key; counter = (j // 4, i)).

        Args:
            ids_M: [M] int64 client numbers; row i of the result depends on `ids_M[i]`, not on its place.
            num: n, draws a row; a longer row begins with the shorter one.
        Returns:
            [M, n] int64, uniform on [0, 2^32), on the device of `ids_M`.
        """
        seed, num_counters = self.seed, -(-num // 4)
        key = (seed & MASK, seed >> 32)
        if ids_M.device.type == "cpu":
            return torch.from_numpy(_words_numpy(key, ids_M.numpy(), num_counters))[:, :num]
        counter = ids_M.new_zeros(4, ids_M.shape[0], num_counters)
        counter[0] = torch.arange(num_counters, device=ids_M.device)
        counter[2] = (ids_M & MASK)[:, None]
        counter[3] = (ids_M >> 32)[:, None]
        return philox_torch(key, counter).permute(1, 2, 0).reshape(ids_M.shape[0], 4 * num_counters)[:, :num]

    def uniform(self, ids_M: Tensor, num: int) -> Tensor:
        """[M, n] float32 uniform on [0, 1) with 24 bits each, keyed as `words` are."""
        return (self.words(ids_M, num) >> 8).to(torch.float32) * 2.0**-24


def _words_numpy(key: tuple[int, int], ids_M: np.ndarray, num_counters: int) -> np.ndarray:
    """[M, 4 * num_counters] int64: the same words as on other devices, with numpy's cheaper calls."""
    counter = np.zeros((4, len(ids_M), num_counters), np.uint64)
    counter[0] = np.arange(num_counters)
    counter[2] = (ids_M & MASK)[:, None]
    counter[3] = (ids_M >> 32)[:, None]
    words = philox_numpy(key, counter).transpose(1, 2, 0)
    return words.reshape(len(ids_M), 4 * num_counters).view(np.int64)
