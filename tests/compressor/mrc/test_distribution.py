"""What is decoded has the law that the theory gives: scalar blocks exactly, others to first order, and damped above
capacity. Keys are fixed, standard errors are measured; each test names faults that, planted, it was seen to catch."""

from __future__ import annotations

import math

import pytest
import torch

from fedcomp.compressor.mrc.fixed_point import gumbel
from fedcomp.random.keys import Key
from tests.compressor.mrc.block_samples import divergence, samples
from tests.looped import looped


def _scalar_law(q: float, p: float, n: int) -> float:
    """Pr(X = 1) for a block of one entry: with L + 1 of n candidates at one, it is their share of the weights."""
    one, zero = q / p, (1 - q) / (1 - p)
    total = 0.0
    for others in range(n):
        chance = math.comb(n - 1, others) * p ** (others + 1) * (1 - p) ** (n - others - 1)
        total += chance * one / ((others + 1) * one + (n - others - 1) * zero)
    return n * total


@looped("q, p, n", [(0.9, 0.1, 16), (0.6, 0.5, 2), (0.2, 0.7, 5), (0.99, 0.01, 256)])
def test_scalar_blocks_follow_the_exact_law(q, p, n) -> None:
    # Faults: noise halved; one word for the noise of two candidates; a sixth of the candidates never chosen.
    decoded, prior, _ = samples(torch.tensor([q]), torch.tensor([p]), n, 200_000)
    exact = _scalar_law(q, float(prior[0]), n)
    error = math.sqrt(exact * (1 - exact) / 200_000)  # 0.0010 for (0.9, 0.1, 16): 0.7319
    assert abs(float(decoded.mean()) - exact) < 4 * error


def test_bias_of_a_block_to_first_order() -> None:
    # E[x_e] - q_e = -(1 + chi^2) / n (q*_e - q_e), fitted as one slope over all entries. Fault: noise halved.
    generator = torch.Generator().manual_seed(0)
    p = 0.2 + 0.6 * torch.rand(32, generator=generator, dtype=torch.float64)
    q = p + 0.085 * torch.randn(32, generator=generator, dtype=torch.float64).sign()
    for n, num_blocks in ((64, 60_000), (256, 60_000)):
        decoded, p, _ = samples(q, p, n, num_blocks)
        first, second = q.square() / p, (1 - q).square() / (1 - p)
        chi = float((first + second).prod())
        pull = first / (first + second) - q
        slopes = ((decoded - q) * pull).sum(1) / pull.square().sum()
        error = float(slopes.std()) / num_blocks**0.5
        assert 1.5 < chi < 4
        assert error < 0.5 * chi / n
        assert float(slopes.mean()) == pytest.approx(-chi / n, abs=3.5 * error + (chi / n) ** 2)


DAMPING = {
    16: (0.78, 0.61, 0.42, 0.28, 0.20),
    256: (1.00, 0.88, 0.66, 0.45, 0.33),
    1024: (0.99, 0.94, 0.75, 0.52, 0.37),
}
"""beta for a block of 256 entries against p = 1/2 at these divergences in nats: mrc.md, section 5."""
DIVERGENCES = (1.27, 2.85, 7.76, 18.9, 38.9)


@looped("n", list(DAMPING))
def test_above_capacity_the_update_is_damped_as_specified(n) -> None:
    # E[x] = p + beta (q - p). Faults: noise halved, or left out.
    p = torch.full((256,), 0.5)
    last = 1.1
    for nats, expected in zip(DIVERGENCES, DAMPING[n], strict=True):
        delta = _shift(nats / 256)
        sign = torch.randn(256, generator=torch.Generator().manual_seed(1)).sign()
        q = 0.5 + delta * sign
        assert float(divergence(q.double(), p.double()).sum()) == pytest.approx(nats, rel=1e-3)
        decoded, _, _ = samples(q, p, n, 400)
        betas = ((decoded - 0.5) * sign).mean(1) / delta
        error = float(betas.std()) / 400**0.5
        assert float(betas.mean()) == pytest.approx(expected, abs=0.03 + 3 * error)
        assert float(betas.mean()) < last + 3 * error
        last = float(betas.mean())


def test_posterior_equal_to_the_prior_is_a_draw_from_the_prior() -> None:
    p = torch.tensor([0.25, 0.5, 0.625, 0.125] * 8)
    decoded, prior, indices = samples(p, p, 256, 20_000, bits=8)
    assert torch.equal(prior, p.double())
    counts = torch.bincount(indices, minlength=256)
    chi = float(((counts - 20_000 / 256) ** 2 / (20_000 / 256)).sum())
    assert abs(chi - 255) < 4 * math.sqrt(2 * 255)
    error = (p * (1 - p) / 20_000).sqrt()
    assert ((decoded.mean(0) - p).abs() < 4.5 * error).all()


def test_noise_is_standard_gumbel() -> None:
    # Kolmogorov's distance of a million draws, whose 0.1 % point is 1.95 / sqrt(n). Fault: one tail used twice.
    words = Key(("gumbel",)).bits(torch.arange(1), 1_000_000)[0]
    drawn = (gumbel(words, 18).double() * 2.0**-18).sort().values
    chance = (-(-drawn).exp()).exp()
    steps = torch.arange(1, 1_000_001) / 1e6
    assert float((chance - steps).abs().max()) < 1.95e-3


def test_noise_is_the_same_function_of_its_word_to_a_few_steps() -> None:
    words = torch.cat(
        (torch.arange(1, 5000, 7), torch.arange(2**31 - 5000, 2**31 + 5000, 7), torch.arange(2**32 - 999, 2**32, 7))
    )
    t = ((words & 0x7FFFFFFF) | 1).double() * 2.0**-32
    exact = torch.where(words < 2**31, -(-torch.log1p(-t)).log(), -(-t.log()).log())
    assert ((gumbel(words, 18).double() * 2.0**-18 - exact).abs() < 1e-5).all()


def _shift(nats: float) -> float:
    """delta with kl(1/2 + delta || 1/2) = nats."""
    low, high = 0.0, 0.4999999
    for _ in range(60):
        middle = (low + high) / 2
        q = torch.tensor(0.5 + middle, dtype=torch.float64)
        low, high = (middle, high) if float(divergence(q, torch.tensor(0.5))) < nats else (low, middle)
    return low
