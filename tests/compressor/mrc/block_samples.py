"""Many samples of one block through the coder, for tests of its law. B repetitions of it, s entries, K candidates."""

import torch
from torch import Tensor

from fedcomp.compressor.mrc.blocks import Blocks
from fedcomp.compressor.mrc.candidates import Candidates, Prior, streams
from fedcomp.compressor.mrc.coder import decode, encode
from fedcomp.compressor.mrc.thresholds import probability, quantised
from fedcomp.random.keys import Key

CLAMP = 2.0**-11


def samples(
    q: Tensor, p: Tensor, num_candidates: int, num_blocks: int, bits: int = 16
) -> tuple[Tensor, Tensor, Tensor]:
    """(decoded bits [B, s] float32, the prior [s] that was really used, indices [B]) for posterior and prior [s]."""
    size, key = len(q), Key(("law", num_candidates, bits))
    thresholds = quantised(p, bits, CLAMP).repeat(num_blocks)[None]
    blocks = Blocks.fixed(size * num_blocks, size)
    one = torch.zeros(1, dtype=torch.int64)
    prior = Prior(thresholds, blocks, Candidates(streams("shared", key, one), num_candidates, bits))
    posterior = q.to(torch.float32).repeat(num_blocks)[None]
    indices = encode(posterior, prior, key.fold_in("coin").bits(one, 2), clamp=CLAMP)
    bits_decoded = decode(indices, prior).view(num_blocks, size).to(torch.float32)
    return bits_decoded, probability(thresholds[0, :size], bits).double(), indices.flatten().to(torch.int64)


def divergence(q: Tensor, p: Tensor) -> Tensor:
    """[s] float64 kl(q || p) of each entry, in nats."""
    return q * (q / p).log() + (1 - q) * ((1 - q) / (1 - p)).log()
