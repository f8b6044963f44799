"""Signs and a Walsh-Hadamard transform of a power-of-two piece of every row, in place: H diag(s) / sqrt(n) and back.

Levels with strides 1, 2, 4, ... in this order, each a sum and a difference of two entries, so the tensors here and the
compiled code of `hadamard_numba.py` agree bit for bit: levels may be fused, but no sum is taken in another order.

Shape legend: M rows, D entries a row, P pieces of n = 2^a entries.
"""

import numpy as np
import torch
from torch import Tensor


def apply(values_MD: Tensor, first: int, size: int, words: Tensor, inverse: bool, num: int = 1) -> None:
    """values[:, first : first + n] <- H (s * it) / sqrt(n), or with `inverse` s * (H it) / sqrt(n).

    Args:
        values_MD: [M, D] float32.
        size: n, a power of two.
        words: [M, ceil(P n / 32)] int64 words of `Key.bits`: s_j is bit j % 32 of word j // 32 (0: -1).
        num: P, so many pieces beside each other, from `first` on, each transformed by itself.
    """
    piece = values_MD[:, first : first + num * size]
    bits = (words.to(torch.int32)[:, :, None] >> torch.arange(32, dtype=torch.int32, device=words.device)) & 1
    signs = bits.flatten(1)[:, : num * size].to(torch.float32).mul_(2.0).sub_(1.0).mul_(float(scale(size)))
    if inverse:
        piece.copy_(butterflies(piece.reshape(-1, size)).view(piece.shape) * signs)
    else:
        piece.copy_(butterflies((piece * signs).view(-1, size)).view(piece.shape))


def scale(size: int) -> np.float32:
    """1 / sqrt(n)."""
    return np.float32(size**-0.5)


def butterflies(piece: Tensor) -> Tensor:
    """[M, n] times the unscaled Hadamard matrix."""
    num_rows, size = piece.shape
    mixed = piece.clone(memory_format=torch.contiguous_format)
    stride = 1
    while stride < size:
        low, high = mixed.view(num_rows, size // (2 * stride), 2, stride).unbind(2)
        difference = low - high
        low.add_(high)
        high.copy_(difference)
        stride *= 2
    return mixed
