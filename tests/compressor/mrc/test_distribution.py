"""What is decoded has the law that the theory gives: of scalar blocks, of a posterior that is the prior, of the noise.

Keys are fixed, standard errors are measured; each test names faults that, planted, it was seen to catch.
"""

import math

import torch

from fedcomp.compressor.mrc.fixed_point import gumbel
from fedcomp.random.keys import Key
from tests.compressor.mrc.block_samples import samples
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
