"""Stochastic sign: its mean and its error in closed form, for every scale."""

import pytest
import torch

from fedcomp.compressor.quantisers.stochastic_sign import StochasticSign
from tests.compressor.mean_and_error import check_mean_and_error, decode_repeated, heavy
from tests.looped import looped

U = heavy(60)
SCALES = {"max": float(U.abs().max()), "l2": float(U.norm()), "mean_abs": 1.5 * float(U.abs().mean()), "fixed": 2.0}


@looped("scale", SCALES)
def test_mean_and_error_in_closed_form(scale: str) -> None:
    codec, a = StochasticSign(scale, value=2.0, factor=1.5, granularity="model"), SCALES[scale]
    c = U.clamp(-a, a)
    decoded = decode_repeated(codec, U, (60,))
    assert torch.allclose(decoded.abs(), torch.tensor(a), rtol=1e-5)
    error = float((a**2 - c.square()).sum() + (c - U).square().sum())
    check_mean_and_error(decoded, U, c, error)
    assert torch.equal(c, U) == codec.unbiased
    if scale == "l2":
        assert error == pytest.approx(59 * float(U.square().sum()), rel=1e-5)


def test_each_tensor_has_its_scale() -> None:
    decoded = decode_repeated(StochasticSign(), U, (20, 39, 1), num=3)
    scales = torch.tensor([float(part.abs().max()) for part in U.split([20, 39, 1])])
    assert torch.equal(decoded.abs(), scales.repeat_interleave(torch.tensor([20, 39, 1])).expand(3, -1))


def test_entries_at_the_scale_are_certain() -> None:
    u = torch.tensor([1.0, -1.0, 1.0])
    assert torch.equal(decode_repeated(StochasticSign(), u, (3,), 500), u.expand(500, 3))
    assert torch.equal(decode_repeated(StochasticSign("l2"), u, (1, 1, 1), 500), u.expand(500, 3))
