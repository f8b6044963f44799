"""`reference.py` on CPUs, by the kernels of `numba_kernels.py`.

Importing this module takes half a second (numba); its first use compiles the kernels, unless they are cached.
"""

import numpy as np
import torch
from torch import Tensor

from fedcomp.compressor.mrc import numba_kernels
from fedcomp.compressor.mrc.candidates import NOISE, Prior
from fedcomp.compressor.mrc.fixed_point import FINEST, gumbel_table


def encode(log_odds: Tensor, prior: Prior, noise_keys: Tensor, repetitions: int, fraction: int) -> Tensor:
    """[M, R, B] int32 chosen candidates; see `coder.encode`."""
    blocks, candidates = prior.blocks, prior.candidates
    chosen = torch.empty(len(log_odds), repetitions, blocks.num, dtype=torch.int32, device="cpu")
    numba_kernels.encode(
        _words(prior.thresholds),
        log_odds.contiguous().numpy(),
        blocks.offsets.numpy(),
        blocks.first,
        _words(candidates.keys),
        _words(noise_keys),
        gumbel_table(log_odds.device).numpy(),
        np.array((candidates.num, candidates.bits, candidates.domain, NOISE, FINEST - fraction)),
        chosen.numpy(),
    )
    return chosen


def decode(indices: Tensor, prior: Prior, out: Tensor) -> None:
    """Add the bits that indices [M, R, B] encode to out [M or 1, n] int32; see `coder.decode`."""
    numba_kernels.decode(
        indices.to(torch.int32).contiguous().numpy(),
        _words(prior.thresholds),
        prior.blocks.offsets.numpy(),
        _words(prior.candidates.keys),
        prior.candidates.bits,
        prior.candidates.domain,
        out.numpy(),
    )


def _words(numbers: Tensor) -> np.ndarray:
    """uint32 copies of integers below 2^32."""
    return numbers.numpy().astype(np.uint32)
