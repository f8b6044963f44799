"""Bits to bytes and back, where the ones are, and the bytes of words in the wire's order: on the data's device.

Bits are uint8 of zeros and ones, the most significant first. A CPU has instructions for all four that numpy uses and
torch does not (2 to 7 times as fast), hence two forms of each: numpy's on the host's own memory, torch's elsewhere.
Tensors know no operation on single bits, so torch's handle eight of them as the eight bytes of an int64: a table holds
them for every byte, and a product collects them,

    sum_i b_i 2^(8 i) x sum_j 2^(9 j) = ... + 2^56 sum_i b_i 2^(7 - i) + ...,   below 2^56 nothing carries.

Shape legend: n bytes or words, m bits.
"""

from __future__ import annotations

import functools
import sys

import numpy as np
import torch
from torch import Tensor

assert sys.byteorder == "little", "the product takes the first of eight bytes for the lowest"

WORD = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers of so many bytes."""
_COLLECT = sum(1 << (9 * j) for j in range(8)) - (1 << 64)


def unpack_bits(packed: Tensor) -> Tensor:
    """[8 n] the bits of bytes [n]."""
    if on_host(packed):
        return torch.from_numpy(np.unpackbits(packed.numpy()))
    return _table(packed.device).index_select(0, packed.to(torch.int32)).view(torch.uint8)


def pack_bits(bits: Tensor) -> Tensor:
    """[ceil(m / 8)] the bytes of bits [m]; the last is filled up with zeros."""
    if on_host(bits):
        return torch.from_numpy(np.packbits(bits.numpy()))
    padded = torch.nn.functional.pad(bits, (0, -bits.shape[0] % 8))
    return (as_words(padded, 8) * _COLLECT).bitwise_right_shift_(56).to(torch.uint8)


def places_of(bits: Tensor) -> Tensor:
    """[number of ones] int64 the places of the ones among bits (or booleans) [m]; their number is read."""
    if on_host(bits):
        return torch.from_numpy(np.flatnonzero(bits.numpy().view(np.bool_)))
    return bits.nonzero()[:, 0]


def swapped(words: Tensor) -> Tensor:
    """Integers [n] with their bytes in the opposite order, from the machine's to the wire's and back."""
    if on_host(words):
        return torch.from_numpy(words.numpy().byteswap())
    return words.view(torch.uint8).view(-1, words.element_size()).flip(1).view(words.dtype)[:, 0]


def as_words(packed: Tensor, size: int) -> Tensor:
    """The same memory as integers of `size` bytes; copied where it does not start at one."""
    aligned = packed if packed.storage_offset() % size == 0 else packed.clone()
    return aligned.view(WORD[size])


def on_host(data: Tensor) -> bool:
    """Whether numpy can work on this memory; not where there is none, whose strides torch does not take back."""
    return data.device.type == "cpu" and data.numel() > 0


@functools.cache
def _table(device: torch.device) -> Tensor:
    """[256] int64 whose bytes are the bits of each byte."""
    values, places = torch.arange(256, device=device), torch.arange(7, -1, -1, device=device)
    return (values[:, None] >> places & 1).to(torch.uint8).view(torch.int64)[:, 0]
