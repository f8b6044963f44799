"""Masked random noise: a vector as a mask over noise that both ends draw from a seed, one bit an entry.

S. Li et al., "Masked random noise for communication-efficient federated learning" (FedMRN), ACM MM 2024
(arXiv:2408.03220), equations 5 to 8. For an entry u and its noise n (never 0), with t = u / n:

    binary  m in {0, 1},   P(m = 1) = clip(t, 0, 1);         signed  m in {-1, 1},  P(m = 1) = clip((t + 1) / 2, 0, 1)

and u is decoded as m n. Given the noise, the mean is c = clip(t, low, 1) n, low = 0 or -1, with variance c (n - c)
(binary) or n^2 - c^2 (signed). Over the noise it is biased, although the paper calls it unbiased: uniform noise makes
of |u| = t alpha, t <= 1, the mean alpha (t - t^2 / 2) (signed; half of that if binary), and never more than alpha / 2.
Only signed masks of Bernoulli noise are unbiased, for |u| <= alpha; they are stochastic signs of scale alpha.

As a compressor this masks after training ("FedAvg w. SM" in the paper's ablation); algorithm/fedmrn.py trains with it.
A message carries at most the noise, so with feedback=error the memory of what is left out grows without bound wherever
updates are larger on average; EF21 (algorithm/bicompfl/bicompfl_cfl.py) stays bounded.

Gaussian noise has the standard deviation alpha, as in the official code (the paper writes a variance). Noise below
1e-8 is set to +1e-8, as there. The paper counts the mask alone; the seed is counted here.

Shape legend: M senders, D entries.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.compressor.contract import Codec
from fedcomp.compressor.seed import SeedCost, seed_field, seed_layout, shared_source
from fedcomp.core.ranges import Within
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Unsigned

ALPHA = {"binary": 0.01, "signed": 0.005}
"""The paper's noise magnitudes (section 5.1): both let an entry move by at most 0.005 a round on average."""
SMALLEST = 1e-8

Mask = Literal["binary", "signed"]
Noise = Literal["uniform", "gaussian", "bernoulli"]
Alpha = Annotated[
    float | None,
    Within(
        f"[{SMALLEST}, inf)",
        f"the magnitude of the noise, in units of an update's entries; less is replaced by {SMALLEST}",
    ),
]


@dataclass(frozen=True)
class MaskedNoise(Codec):
    """Sends a mask over shared noise; biased, except where the module says.

    Attributes:
        noise: uniform, alpha U(-1, 1); gaussian, alpha N(0, 1); bernoulli, +-alpha with equal probability.
        stochastic: false: m = [u n > 0] or sign(u n), and -1 where u = 0, since a bit has no third value.
    """

    mask: Mask = "binary"
    noise: Noise = "uniform"
    alpha: Alpha = None
    stochastic: bool = True
    seed_cost: SeedCost = "sent"

    @property
    def magnitude(self) -> float:
        """alpha, or its default for this mask."""
        return ALPHA[self.mask] if self.alpha is None else self.alpha

    @property
    def low(self) -> float:
        """What a mask's smaller value multiplies the noise by."""
        return 0.0 if self.mask == "binary" else -1.0

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """The seed, and the mask (1 for its larger value)."""
        fields = seed_field(self.seed_cost, common, sender_key)
        noise = self.noise_of(Payload(fields), common)
        ratio = x.to(torch.float32) / noise
        draws = sender_key.fold_in("mask").uniform(common.ids, common.dim) if self.stochastic else None
        bits = ratio > 0 if draws is None else draws < self.mask_probability(ratio)
        return Payload(fields | {"mask": Field(bits.to(torch.uint8), Unsigned(1))}, paper_bits=common.dim)

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """m n."""
        mask = self._read(payload, common)
        return self.value(mask).mul_(self.noise_of(payload, common))

    def weighted_sum(self, payload: Payload, common: SharedKnowledge, weight: Tensor) -> Tensor:
        """[D]: one sender's noise after another, so that no more than one row of it exists at a time."""
        key, ids = shared_source(payload, common)
        mask, total = self._read(payload, common), None
        for row in range(mask.shape[0]):
            noise = self.draw(key, ids[row : row + 1] if ids.shape[0] > 1 else ids, common.dim)[0]
            term = self.value(mask[row]).mul_(noise).mul_(weight[row])
            total = term if total is None else total.add_(term)
        return mask.new_zeros(common.dim, dtype=torch.float32) if total is None else total

    def source(self, common: SharedKnowledge, sender_key: Key) -> tuple[Key, Tensor]:
        """(key, [M] ids) of the noise that `encode` will draw: for senders that train with it."""
        return shared_source(Payload(seed_field(self.seed_cost, common, sender_key)), common)

    def noise_of(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """[M, D] float32 noise that both ends draw; `payload` needs no more than its seed."""
        key, ids = shared_source(payload, common)
        return self.draw(key, ids, common.dim)

    def draw(self, key: Key, ids: Tensor, dim: int) -> Tensor:
        """[M, D] float32 noise of the rows that `ids` [M] name, never 0."""
        key = key.fold_in("noise")
        if self.noise == "uniform":
            noise = key.uniform(ids, dim).mul_(2.0).sub_(1.0)
        else:
            noise = key.normal(ids, dim) if self.noise == "gaussian" else key.rademacher(ids, dim)
        noise = noise.mul_(self.magnitude)
        return noise if self.noise == "bernoulli" else noise.masked_fill_(noise.abs() < SMALLEST, SMALLEST)

    def mask_probability(self, ratio: Tensor) -> Tensor:
        """P(m = larger value) of u / n, before it is clipped to [0, 1] (a uniform draw in [0, 1) does that)."""
        return ratio if self.mask == "binary" else (ratio + 1.0).mul_(0.5)

    def value(self, mask: Tensor) -> Tensor:
        """What a bit of the mask stands for, as a new float32 tensor."""
        value = mask.to(torch.float32)
        return value if self.mask == "binary" else value.mul_(2.0).sub_(1.0)

    def _read(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        return payload.expect(**seed_layout(self.seed_cost), mask=common.dim)[-1]
