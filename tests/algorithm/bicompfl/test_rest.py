"""SplitDL's other blocks: mixtures in whole numbers, and how their share falls."""

from fractions import Fraction
from math import floor

import pytest
import torch

from fedcomp.algorithm.bicompfl.bicompfl_pr import BiCompFLPR
from fedcomp.algorithm.bicompfl.rest import STEPS, Rest
from fedcomp.algorithm.masks.coded import MaskEstimate
from fedcomp.client.adam import Adam
from tests.looped import looped

SCORES = Adam(lr=0.2, batch_size=4, epochs=2)


@looped("n_ul", [1, 3])
@looped("share", [0.2, 0.03, 1.0])
def test_a_mixture_is_the_nearest_code(share: float, n_ul: int) -> None:
    """Of every code and count, against fractions; theta_0 = 1/4 stands where nothing is known yet."""
    rest = Rest("mix", share)
    num = rest.resolution(10)
    estimate, theta0 = MaskEstimate(num), torch.full((1,), 0.25)
    eta = Fraction(rest.eta(7), STEPS)
    assert (num, float(eta)) == (250, pytest.approx(share, abs=1e-6))
    for sent in range(n_ul + 1):
        codes = torch.arange(num + 2, dtype=torch.uint8)[:, None]
        found = rest.codes(codes, torch.full_like(codes, sent), n_ul, theta0, estimate, 7)[:, 0].tolist()
        old = [*map(Fraction, range(num + 1)), Fraction(63)]  # 250 * 64 / 256 = 62.5, rounded up
        assert found == [floor((1 - eta) * one + eta * Fraction(num * sent, n_ul) + Fraction(1, 2)) for one in old]


def test_the_share_falls_and_ends() -> None:
    rest = Rest("mix", 0.4, mix_half_after=10, mix_until=50)
    assert [rest.eta(t) / STEPS for t in (0, 10, 30, 50, 90)] == pytest.approx([0.4, 0.2, 0.1, 0, 0], abs=1e-6)
    assert Rest("mix").eta(10**6) == Rest("mix").eta(0) == round(0.2 * STEPS)
    codes = torch.tensor([[3, 251]], dtype=torch.uint8)
    kept = rest.codes(codes, torch.ones_like(codes), 1, torch.full((2,), 0.5), MaskEstimate(250), 50)
    assert torch.equal(kept, codes)
    assert [Rest("mix").resolution(n) for n in (1, 7, 100, 254)] == [253, 252, 200, 254]


@looped("name", ["mix_share", "mix_half_after", "mix_until"])
def test_a_schedule_is_above_zero(name: str) -> None:
    with pytest.raises(ValueError, match=rf"algorithm\.{name}=0 must be"):
        BiCompFLPR(client=SCORES, split_downlink=True, rest="mix", **{name: 0})  # type: ignore[arg-type]
