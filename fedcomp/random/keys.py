"""Keyed randomness: a draw is a pure function of a key, as in `jax.random`.

A `Key` is a path such as ("run", seed, round, "mask"). Drawing changes no state, so no draw depends on the order of
draws, the chunk size, the number of devices or a resume. Shape legend: M rows (clients), n draws a row.

The tensor code in this file defines every draw. `philox_numba.py` (CPU) and `philox_triton.py` (GPU) compute the same
bits faster, which a trial shows before the first draw; the CPU form is used once it is worth its import.
"""

import functools
import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from fedcomp.core.accelerated import Form, is_safe, plainly
from fedcomp.random.box_muller import box_muller
from fedcomp.random.philox import MASK, philox_numpy, philox_torch

TRITON = Form("Triton's kernels", "tensor operations")
NUMBA = Form("compiled draws", "those of NumPy")
COMPILE_AFTER_WORDS = 1 << 22
"""Number of words, summed over all draws of a process, from which compiled draws are used. Importing numba takes half a
second, which fewer words do not win back."""

_words_so_far = 0


@dataclass(frozen=True)
class Key:
    """Names a source of randomness: the `path` says what it is for, from general to specific."""

    path: tuple[int | str, ...] = ()

    def fold_in(self, *parts: int | str) -> "Key":
        """A key with a longer path: `key.fold_in("batch", 3)`."""
        return Key(self.path + parts)

    @property
    def seed(self) -> int:
        """64 bits of BLAKE2b over the path."""
        digest = hashlib.blake2b(repr(self.path).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little")

    def generator(self) -> torch.Generator:
        """A new CPU generator, for single draws on the host (a permutation, a model's initial weights)."""
        return torch.Generator().manual_seed(self.seed >> 1)

    def bits(self, ids_M: Tensor, num: int, start: int = 0) -> Tensor:
        """Random words, one row a client: word j of client i is Philox(key; counter = (j // 4, i)).

        Args:
            ids_M: [M] int64 client numbers; row i of the result depends on `ids_M[i]` alone, not on i.
            num: n, draws a row; a longer row begins with the shorter one.
            start: first word, a multiple of 4: `bits(ids, n)[:, s:]` is `bits(ids, n - s, s)`, so that long rows can
                be drawn in blocks.
        Returns:
            [M, n] int64, uniform on [0, 2^32), on the device of `ids_M`.
        """
        assert start % 4 == 0, start
        if compiled := _compiled("bits", ids_M, num):
            return self._draw(compiled, ids_M, num, start, torch.int64)
        seed, first, num_counters = self.seed, start // 4, -(-num // 4)
        key = (seed & MASK, seed >> 32)
        if ids_M.device.type == "cpu":
            return torch.from_numpy(_words_numpy(key, ids_M.numpy(), first, num_counters))[:, :num]
        if has_triton(ids_M.device):
            return _by_triton("bits", seed, ids_M, num, start)
        return _words_torch(key, ids_M, num, start)

    def uniform(self, ids_M: Tensor, num: int, start: int = 0) -> Tensor:
        """[M, n] float32 uniform on [0, 1), each from the upper 24 bits of a word of `bits`."""
        assert start % 4 == 0, start
        if compiled := _compiled("uniform", ids_M, num):
            return self._draw(compiled, ids_M, num, start, torch.float32)
        if has_triton(ids_M.device):
            return _by_triton("uniform", self.seed, ids_M, num, start)
        return _uniform(self.bits(ids_M, num, start))

    def rademacher(self, ids_M: Tensor, num: int, start: int = 0) -> Tensor:
        """[M, n] float32, -1 or +1 with probability 1/2: draw j is bit j % 32 of word j // 32 (0: -1).

        `start`, the first draw, is a multiple of 128.
        """
        assert start % 128 == 0, start
        if compiled := _compiled("rademacher", ids_M, num):
            return self._draw(compiled, ids_M, num, start, torch.float32)
        if has_triton(ids_M.device):
            return _by_triton("rademacher", self.seed, ids_M, num, start)
        words = self.bits(ids_M, -(-num // 32), start // 32)
        bits = (words[:, :, None] >> torch.arange(32, device=words.device)) & 1
        return bits.flatten(1)[:, :num].to(torch.float32).mul_(2.0).sub_(1.0)

    def normal(self, ids_M: Tensor, num: int, start: int = 0) -> Tensor:
        """[M, n] float32 standard normal draws, by the Box-Muller transform of `bits`: see `box_muller.py`.

        Draws 2t and 2t + 1 come from words 2t and 2t + 1. `start` is a multiple of 4. All devices agree bit for bit.
        """
        assert start % 4 == 0, start
        if compiled := _compiled("normal", ids_M, num):
            return self._draw(compiled, ids_M, num, start, torch.float32)
        return box_muller(self.bits(ids_M, num + num % 2, start))[:, :num]

    def choice(self, ids_M: Tensor, num: int, out_of: int) -> Tensor:
        """[M, k] int64, ascending: for each row a uniformly random subset of range(n) with k elements.

        These are the indices of the k smallest of n words of `bits`; ties go to the lower index.

        Args:
            num: k. out_of: n.
        """
        assert 0 <= num <= out_of, (num, out_of)
        if compiled := _compiled("choice", ids_M, out_of):
            return self._draw(compiled, ids_M, num, out_of, torch.int64)
        ranked = (self.bits(ids_M, out_of) << 31) | torch.arange(out_of, device=ids_M.device)
        return (ranked.topk(num, dim=1, largest=False, sorted=False).values & 0x7FFFFFFF).sort(dim=1).values

    def _draw(self, compiled: Callable[..., None], ids_M: Tensor, num: int, option: int, dtype: torch.dtype) -> Tensor:
        drawn = torch.empty(ids_M.shape[0], num, dtype=dtype, device=ids_M.device)
        rows = np.ascontiguousarray(ids_M.numpy()).view(np.uint64)
        compiled(np.uint64(self.seed), rows, option, drawn.numpy())
        return drawn


@dataclass(frozen=True)
class DeviceKey:
    """A `Key` whose seed lies on the device, for CUDA graphs: each replay reads another key from the same memory.

    Attributes:
        halves: [2] int64, lower and upper 32 bits of `Key.seed`.
    """

    halves: Tensor

    def bits(self, ids_M: Tensor, num: int, start: int = 0) -> Tensor:
        """As `Key.bits`."""
        assert start % 4 == 0, start
        if has_triton(ids_M.device):
            return _by_triton("bits", self.halves, ids_M, num, start)
        return _words_torch(self.halves.view(2, 1, 1), ids_M, num, start)

    def uniform(self, ids_M: Tensor, num: int, start: int = 0) -> Tensor:
        """As `Key.uniform`."""
        if has_triton(ids_M.device):
            return _by_triton("uniform", self.halves, ids_M, num, start)
        return _uniform(self.bits(ids_M, num, start))


def seed_halves(keys: Sequence[Key]) -> np.ndarray:
    """[len(keys), 2] int64: lower and upper 32 bits of each key's seed, as `DeviceKey` takes them."""
    seeds = [key.seed for key in keys]
    return np.array([(seed & MASK, seed >> 32) for seed in seeds], np.int64).reshape(-1, 2)


def has_triton(device: torch.device) -> bool:
    """Whether Triton's kernels are used on this device: not unless they draw there what the host draws.

    They need a C compiler and Python's headers.
    """
    if device.type != "cuda" or not _triton_is_installed():
        return False
    return TRITON.agrees(f"draws on {device}", functools.partial(_drawn_by_triton, device), _drawn_plainly)


@functools.cache
def _triton_is_installed() -> bool:
    return find_spec("triton") is not None and find_spec("fedcomp.random.philox_triton") is not None


_TRIAL, _TRIAL_IDS, _TRIAL_DRAWS = Key(("trial",)), (0, (1 << 32) + 5), 1025
"""What forms of draws are tried with: 1,025 draws leave a tile of 1,024 almost empty."""


def _drawn_by_triton(device: torch.device) -> tuple[Tensor, ...]:
    """Draws of every kind for a key that the host knows, and one that lies on the device."""
    ids = torch.tensor(_TRIAL_IDS, device=device)
    seeds = _TRIAL.seed, torch.from_numpy(seed_halves([_TRIAL]))[0].to(device)
    names = "bits", "uniform", "rademacher"
    drawn = (_by_triton(name, seed, ids, _TRIAL_DRAWS, 0) for name in names for seed in seeds)
    return (*drawn, box_muller(_by_triton("bits", _TRIAL.seed, ids, _TRIAL_DRAWS + 1, 0))[:, :_TRIAL_DRAWS])


def _drawn_plainly() -> tuple[Tensor, ...]:
    """The same on the host."""
    names = "bits", "bits", "uniform", "uniform", "rademacher", "rademacher", "normal"
    return tuple(_trial_of(name) for name in names)


def _trial_of(name: str, compiled: Callable[..., None] | None = None) -> Tensor:
    """The trial's draws `name` on the host, by the compiled form if it is given."""
    ids = torch.tensor(_TRIAL_IDS)
    num, options = (_TRIAL_DRAWS // 8, (_TRIAL_DRAWS,)) if name == "choice" else (_TRIAL_DRAWS, ())
    if compiled is None:
        with plainly():
            return getattr(_TRIAL, name)(ids, num, *options)
    dtype = torch.int64 if name in ("bits", "choice") else torch.float32
    return _TRIAL._draw(compiled, ids, num, *(options or (0,)), dtype)


def _by_triton(name: str, seed: int | Tensor, ids_M: Tensor, num: int, start: int) -> Tensor:
    from fedcomp.random import philox_triton

    return philox_triton.draw(name, seed, ids_M, num, start)


def _uniform(words: Tensor) -> Tensor:
    return (words >> 8).to(torch.float32) * 2.0**-24


def _words_torch(key: tuple[int, int] | Tensor, ids_M: Tensor, num: int, start: int) -> Tensor:
    first, num_counters = start // 4, -(-num // 4)
    counter = ids_M.new_zeros(4, ids_M.shape[0], num_counters)
    counter[0] = torch.arange(first, first + num_counters, device=ids_M.device)
    counter[2] = (ids_M & MASK)[:, None]
    counter[3] = ((ids_M >> 32) & MASK)[:, None]
    return philox_torch(key, counter).permute(1, 2, 0).reshape(ids_M.shape[0], 4 * num_counters)[:, :num]


def _compiled(name: str, ids_M: Tensor, num: int) -> Callable[..., None] | None:
    """numba's form of the draw `name` on a CPU; None: use the tensor code.

    It is used after `COMPILE_AFTER_WORDS` words, and at once in a process that has other compiled code.
    """
    global _words_so_far
    if ids_M.device.type != "cpu" or is_safe():
        return None
    _words_so_far += ids_M.shape[0] * num
    if _words_so_far < COMPILE_AFTER_WORDS and "fedcomp.random.numba_jit" not in sys.modules:
        return None
    from fedcomp.random import philox_numba

    compiled = getattr(philox_numba, name)
    agrees = NUMBA.agrees(name, lambda: (_trial_of(name, compiled),), lambda: (_trial_of(name),))
    return compiled if agrees else None


def _words_numpy(key: tuple[int, int], ids_M: np.ndarray, first: int, num_counters: int) -> np.ndarray:
    """[M, 4 * num_counters] int64: as `_words_torch`, by NumPy, whose calls cost less on small arrays."""
    counter = np.zeros((4, len(ids_M), num_counters), np.uint64)
    counter[0] = np.arange(first, first + num_counters)
    counter[2] = (ids_M & MASK)[:, None]
    counter[3] = ((ids_M >> 32) & MASK)[:, None]
    words = philox_numpy(key, counter).transpose(1, 2, 0)
    return words.reshape(len(ids_M), 4 * num_counters).view(np.int64)
