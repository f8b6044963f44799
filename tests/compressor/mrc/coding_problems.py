"""Coding problems of every shape, with what the implementations need of them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.compressor.mrc.blocks import Blocks
from fedcomp.compressor.mrc.candidates import Candidates, Prior, streams
from fedcomp.compressor.mrc.fixed_point import fraction_bits, log_odds
from fedcomp.compressor.mrc.thresholds import probability, quantised
from fedcomp.random.keys import Key

KEY = Key(("problem",))
SHAPES = (*((num, "shared", 1) for num in (1, 3, 12)), (3, "per_client", 1), (3, "per_client", 3), (2, "shared", 2))
"""(senders, source of candidates, priors)."""


@dataclass(frozen=True)
class Problem:
    """Posteriors q [M, D] against thresholds [P, D] in blocks, among candidates, with noise_keys [M, 2]."""

    q: Tensor
    thresholds: Tensor
    blocks: Blocks
    candidates: Candidates
    noise_keys: Tensor

    @property
    def prior(self) -> Prior:
        return Prior(self.thresholds, self.blocks, self.candidates)

    @property
    def fraction(self) -> int:
        return fraction_bits(self.blocks.longest)

    @property
    def log_odds(self) -> Tensor:
        return log_odds(self.q, self.thresholds, self.candidates.bits, 0.01, self.fraction)

    @property
    def plain(self) -> tuple:
        """Arguments of `coder.encode`."""
        return self.q, self.prior, self.noise_keys

    @property
    def encoding(self) -> tuple:
        """Arguments of an implementation's `encode`, for two repetitions."""
        return self.log_odds, self.prior, self.noise_keys, 2, self.fraction

    def row(self, row: int) -> "Problem":
        """One sender that shares candidates and prior with the others."""
        at = slice(row, row + 1)
        return Problem(self.q[at], self.thresholds, self.blocks, self.candidates, self.noise_keys[at])


def problem(
    rows: int, source: str, priors: int, num: int, bits: int, blocks: Blocks, device: str = "cpu", same: bool = False
) -> Problem:
    """Random posteriors and priors over these blocks; with `same`, posteriors are the priors."""
    generator = torch.Generator().manual_seed(1000 * rows + num)
    thresholds = quantised(torch.rand(priors, blocks.dim, generator=generator), bits, 0.01).to(device)
    q = torch.rand(rows, blocks.dim, generator=generator).to(device)
    ids = torch.arange(5, 5 + rows, device=device)
    candidates = Candidates(streams(source, KEY, ids), num, bits)
    return Problem(
        probability(thresholds, bits) if same else q, thresholds, blocks, candidates, KEY.fold_in("coin").bits(ids, 2)
    )
