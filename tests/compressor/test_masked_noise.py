"""Masked random noise: the closed forms of `masked_noise.py`, with their standard errors."""

import math

import pytest
import torch
from torch import Tensor

from fedcomp.compressor.masked_noise import SMALLEST, MaskedNoise
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from tests.looped import looped

NUM = 400_000


def decoded(codec: MaskedNoise, u: float, num: int = NUM) -> Tensor:
    """[n] float64 what `num` entries u are decoded to, each with noise and mask of its own."""
    common = SharedKnowledge(Key(("noise",)), torch.arange(1), (num,))
    payload = codec.encode(torch.full((1, num), u), common, Key(("coin",)))
    return codec.decode(payload, common)[0].double()


def near(values: Tensor, mean: float, sigmas: float = 5.0) -> bool:
    """Whether the mean of values is `mean`, within so many standard errors."""
    return abs(float(values.mean()) - mean) < sigmas * float(values.std()) / math.sqrt(len(values)) + 1e-12


def uniform_mean(mask: str, t: float) -> float:
    """E[u^] / alpha of u = t alpha over uniform noise."""
    signed = math.copysign(1, t) * (abs(t) - t * t / 2 if abs(t) <= 1 else 0.5)
    return signed if mask == "signed" else signed / 2


def uniform_mse(mask: str, t: float) -> float:
    """E[(u^ - u)^2] / alpha^2."""
    t = abs(t)
    if mask == "signed":
        return 1 / 3 - t**2 + t**3 if t <= 1 else t**2 - t + 1 / 3
    return t / 4 + 5 * t**3 / 12 if t <= 1 else (t**2 - t + 1 / 3) / 2 + t**2 / 2


@looped("mask", ["binary", "signed"])
@looped("t", [0.0, 0.1, -0.5, 1.0, 1.7])
def test_uniform_noise_is_biased_as_the_closed_form_says(mask: str, t: float) -> None:
    alpha = 0.02
    out = decoded(MaskedNoise(mask, "uniform", alpha), t * alpha) / alpha
    assert near(out, uniform_mean(mask, t))
    assert near((out - t).square(), uniform_mse(mask, t))
    if abs(t) == 0.5:
        assert not near(out, t), "the paper calls it unbiased"


def test_magnitudes_are_the_papers_and_zero_without_draws_is_the_smaller_value() -> None:
    assert [MaskedNoise(mask).magnitude for mask in ("binary", "signed")] == [0.01, 0.005]
    common = SharedKnowledge(Key(("noise",)), torch.arange(2), (50,))
    for mask in ("binary", "signed"):
        payload = MaskedNoise(mask, stochastic=False).encode(torch.zeros(2, 50), common, Key(("coin",)))
        assert not payload.fields["mask"].data.any()


@looped("mask", ["binary", "signed"])
@looped("t", [0.2, -1.0, 2.5])
def test_gaussian_noise_has_the_deviation_alpha(mask: str, t: float) -> None:
    alpha, size = 0.5, abs(t)
    signed = math.sqrt(2 / math.pi) * (1 - math.exp(-(t**2) / 2)) + size * math.erfc(size / math.sqrt(2))
    out = decoded(MaskedNoise(mask, "gaussian", alpha), t * alpha) / alpha
    assert near(out, math.copysign(signed if mask == "signed" else signed / 2, t))


@looped("t", [0.0, 0.4, -0.9, 1.0])
def test_bernoulli_noise_with_signed_masks_is_stochastic_sign(t: float) -> None:
    alpha = 0.25
    out = decoded(MaskedNoise("signed", "bernoulli", alpha), t * alpha)
    assert set(out.abs().tolist()) == {alpha}
    assert near(out, t * alpha)


@looped("mask", ["binary", "signed"])
def test_moments_given_the_noise(mask: str) -> None:
    """Mean c = clip(u / n) n, variance c (n - c) or n^2 - c^2: many masks over one noise, which the seed names."""
    codec, num = MaskedNoise(mask, "uniform", 1.0, seed_cost="derived"), 20_000
    common = SharedKnowledge(Key(("fixed",)), torch.zeros(num, dtype=torch.int64), (7,))
    u = torch.linspace(-0.6, 0.9, 7).expand(num, -1)
    noise = codec.source(common, Key())
    n = codec.draw(*noise, 7)[0].double()
    rows = SharedKnowledge(Key(("fixed",)), torch.arange(num), (7,))
    bits = Key(("coin",)).fold_in("mask").uniform(rows.ids, 7) < codec.mask_probability(u / n.float())
    out = codec.value(bits).double() * n
    c = (u[0].double() / n).clamp(codec.low, 1) * n
    variance = c * (n - c) if mask == "binary" else n**2 - c**2
    error = (variance / num).sqrt()
    assert ((out.mean(0) - c).abs() <= 5 * error + 1e-6).all()
    assert torch.allclose(out.var(0), variance, rtol=0.1, atol=1e-3)


def test_masks_are_one_where_the_noise_is_the_update() -> None:
    codec = MaskedNoise("signed", "gaussian", 0.1, seed_cost="derived")
    common = SharedKnowledge(Key(("x",)), torch.arange(3), (50,))
    u = codec.draw(*codec.source(common, Key()), 50)
    assert torch.equal(codec.decode(codec.encode(u, common, Key(("c",))), common), u)


def test_deterministic_masks_point_the_same_way() -> None:
    common = SharedKnowledge(Key(("x",)), torch.arange(3), (50,))
    u = torch.randn(3, 50, generator=Key(("u",)).generator())
    for codec in (MaskedNoise("binary", stochastic=False), MaskedNoise("signed", stochastic=False)):
        out = codec.decode(codec.encode(u, common, Key(("c",))), common)
        assert (out * u >= 0).all()
        assert (out.abs() > 0).float().mean() == pytest.approx(1.0 if codec.mask == "signed" else 0.5, abs=0.15)


def test_noise_is_never_zero_and_saturates() -> None:
    codec = MaskedNoise("signed", "uniform", SMALLEST)
    noise = codec.draw(Key(("n",)), torch.arange(2), 1000)
    assert (noise == SMALLEST).all()
    out = decoded(MaskedNoise("binary", "uniform", 0.01), 5.0)
    assert out.abs().max() <= 0.01
    assert near(out, 0.0025)
