"""A random rotation of vectors of any length that needs no padding: signs and Hadamard transforms of pieces.

A. Suresh, F. Yu, S. Kumar, H. B. McMahan, "Distributed mean estimation with limited communication", ICML 2017, section
3: z = H diag(s) x / sqrt(D) with random signs s. DRIVE's and EDEN's code pads x to a power of two, which sends up to
twice as many bits; here x is cut into blocks of 2^17 and one shorter piece. A piece whose size c is no power of two
is put in a random order (`order.py`) and gets two transforms that overlap, of its first 2^a and of its last 2^a
entries, 2^a the largest power up to c, with signs of their own. Every step is orthonormal, so the whole is. Blocks of
2^17 floats also stay in a CPU's second cache.

Why an order: where 2^(a+1) is little more than c the two transforms hardly meet, so each keeps the energy of its own
entries, and one scale fits neither if these are, say, different layers (1.6 ||x||^2 instead of 0.57 for EDEN's one bit,
and biased). In a random order both have their share. With k entries that hold most of the energy, the shares still
differ by about 1 / sqrt(k); a second rotation evens that out. Signs and order are each sender's own: the signs alone
make errors of senders independent given the order, but its uneven shares would be an error that all have in common.

Shape legend: M rows (senders), D entries, P pieces.
"""

from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from fedcomp.compressor.rotations import hadamard, order
from fedcomp.core.accelerated import is_safe
from fedcomp.random.keys import Key

LARGEST = 1 << 17
COMPILED = 1 << 16
"""Dimension from which a CPU takes the compiled transform: importing numba takes half a second."""


@dataclass(frozen=True)
class Rotation:
    """An orthonormal matrix [D, D] for each key and sender; `rounds`: how often all is repeated, with fresh signs."""

    dim: int
    rounds: int = 1

    @property
    def pieces(self) -> tuple[int, ...]:
        """[P] sizes that sum to D: entries of one piece are mixed with each other only."""
        blocks, rest = divmod(self.dim, LARGEST)
        return (LARGEST,) * blocks + ((rest,) if rest else ())

    def forward(self, x_MD: Tensor, key: Key, ids_M: Tensor) -> Tensor:
        """[M, D] z = R x, a new tensor; row i is rotated by what (key, ids[i]) names."""
        z = x_MD.clone(memory_format=torch.contiguous_format)
        for turn in range(self.rounds):
            self._order(z, key.fold_in("rotation", turn, "order"), ids_M, inverse=False)
            for name, spans in self._steps():
                _apply(z, spans, key.fold_in("rotation", turn, name), ids_M, inverse=False)
        return z

    def inverse(self, z_MD: Tensor, key: Key, ids_M: Tensor) -> Tensor:
        """[M, D] x = R^T z, a new tensor."""
        x = z_MD.clone(memory_format=torch.contiguous_format)
        for turn in reversed(range(self.rounds)):
            for name, spans in reversed(self._steps()):
                _apply(x, spans, key.fold_in("rotation", turn, name), ids_M, inverse=True)
            self._order(x, key.fold_in("rotation", turn, "order"), ids_M, inverse=True)
        return x

    def _order(self, values_MD: Tensor, key: Key, ids_M: Tensor, inverse: bool) -> None:
        """Put the last piece of all rows in its order, or back, in place; one whose size is a power of two has none."""
        last = self.dim % LARGEST
        if not last & (last - 1):
            return
        step, start = order.draw(key, ids_M, last)
        if _compiles(values_MD):
            from fedcomp.compressor.rotations import order_numba

            steps, starts = (one.numpy().astype(np.uint32) for one in (step, start))
            order_numba.apply(values_MD.numpy(), self.dim - last, steps, starts, inverse)
        else:
            order.apply(values_MD[:, self.dim - last :], step, start, inverse)

    def _steps(self) -> list[tuple[str, list[tuple[int, int]]]]:
        """Transforms in their order, as (first entry, size): those side by side, then the overlapping one, if any."""
        *blocks, last = (*self.pieces,) or (1,)
        first = sum(blocks)
        size = 1 << (last.bit_length() - 1)
        beside = [(place * LARGEST, LARGEST) for place in range(len(blocks))] + [(first, size)]
        overlapping = [(self.dim - size, size)]
        return [("beside", beside)] + ([("overlapping", overlapping)] if size < last else [])


def _apply(values_MD: Tensor, spans: list[tuple[int, int]], key: Key, ids_M: Tensor, inverse: bool) -> None:
    """Transform `spans` of all rows in place, with signs drawn from the first span's first entry on."""
    origin, end = spans[0][0], spans[-1][0] + spans[-1][1]
    words = key.bits(ids_M, -(-(end - origin) // 32))
    compiled = _compiles(values_MD)
    for size, alike in groupby(spans, lambda span: span[1]):  # those of one size are next to each other
        firsts = [first for first, _ in alike]
        num = 1 if compiled else len(firsts)
        for first in firsts[::num]:
            from_word = (first - origin) // 32
            part = words[:, from_word : from_word - (-num * size // 32)]
            if compiled:
                _compiled(values_MD, first, size, part, inverse)
            else:
                hadamard.apply(values_MD, first, size, part, inverse, num)


def _compiles(values_MD: Tensor) -> bool:
    return values_MD.device.type == "cpu" and values_MD.shape[1] >= COMPILED and not is_safe()


def _compiled(values_MD: Tensor, first: int, size: int, words: Tensor, inverse: bool) -> None:
    from fedcomp.compressor.rotations import hadamard_numba

    rows, bits = values_MD.numpy(), words.contiguous().numpy()
    hadamard_numba.apply(rows, first, size, bits, hadamard.scale(size), inverse)
