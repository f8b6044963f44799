"""DRIVE: its error constants, its projection in every draw, sparse vectors, many clients, and its bits."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fedcomp.compressor.rotations.drive import Drive
from fedcomp.compressor.rotations.eden import Eden
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from tests.looped import looped

CNNS = (1_933_258, 2_262_602, 390_880, 1_181_536)
LEAST, UNBIASED = 1 - 2 / math.pi, math.pi / 2 - 1


def decoded(codec: Drive | Eden, x: Tensor, *name: int) -> Tensor:
    known = SharedKnowledge(Key(("drive test", *name)), torch.arange(len(x)), (x.shape[1],))
    return codec.decode(codec.encode(x, known, known.key.fold_in("coin")), known)


def dense(num: int, dim: int, heavy: bool = False) -> Tensor:
    """One vector in all rows, whose senders draw rotations of their own: normal entries, or log-normal ones."""
    x = torch.randn(1, dim, generator=torch.Generator().manual_seed(dim))
    return (x.exp() if heavy else x).expand(num, dim)


def nmse(codec: Drive | Eden, x: Tensor) -> float:
    """Mean over rows of ||decoded - x||^2 / ||x||^2."""
    return float(((decoded(codec, x) - x).square().sum(1) / x.square().sum(1)).mean())


@looped("heavy", [False, True])
@looped("scale, expected", [("min_mse", LEAST), ("unbiased", UNBIASED)])
def test_error_and_projection(scale: str, expected: float, heavy: bool) -> None:
    x = dense(400, 1024, heavy)
    assert nmse(Drive(scale), x) == pytest.approx(expected, rel=0.03)
    projection = (decoded(Drive(scale), x).double() * x).sum(1) / x.double().square().sum(1)
    if scale == "unbiased":
        assert (projection - 1).abs().max() < 1e-6
    else:
        assert float(projection.mean()) == pytest.approx(2 / math.pi, rel=0.01)


def test_nothing_is_padded() -> None:
    # 600 entries go through two overlapping transforms of 512; padding to 1024 would give 0.33 and 1.71 bits an entry.
    assert nmse(Drive("unbiased"), dense(400, 600)) == pytest.approx(UNBIASED, rel=0.03)


@pytest.mark.parametrize("scale", ["min_mse", "unbiased"])
def test_one_hot_is_exact(scale: str) -> None:
    x = torch.zeros(3, 256)
    x[:, 77] = torch.tensor([1.0, -2.5, 1e-3])
    torch.testing.assert_close(decoded(Drive(scale), x), x, rtol=1e-6, atol=1e-7)


def test_two_sparse_vectors_need_two_rotations() -> None:
    x = torch.zeros(2000, 512)
    x[:, 3], x[:, 90] = 1.0, 0.5
    once, twice = decoded(Drive("unbiased"), x), decoded(Drive("unbiased", rotations=2), x)
    expected = torch.zeros_like(x)
    expected[:, 3] = 1.25  # (a^2 + b^2) / a, and 0 for b, whatever the signs
    torch.testing.assert_close(once, expected, rtol=1e-5, atol=1e-5)
    error = twice.std(0) / len(x) ** 0.5
    assert ((twice.mean(0) - x[0]).abs() < 5 * error + 0.01).all()  # two are nearly, not quite, uniformly random
    assert float((twice - x).square().sum(1).mean() / 1.25) == pytest.approx(UNBIASED, rel=0.05)


def test_mean_of_clients_with_rotations_of_their_own() -> None:
    # Unbiased errors are divided by n; those of min_mse keep their common part (1 - 2/pi)^2.
    num, x = 10, dense(1000, 512)
    floor = LEAST**2 + 2 / math.pi * LEAST / num
    for scale, expected in (("unbiased", UNBIASED / num), ("min_mse", floor)):
        means = decoded(Drive(scale), x).view(100, num, 512).mean(1)
        error = float((means - x[:100]).square().sum(1).mean() / x[0].square().sum())
        assert error == pytest.approx(expected, rel=0.04)


def test_zero_and_tiny_vectors() -> None:
    assert not decoded(Drive("unbiased"), torch.zeros(2, 100)).any()
    for dim in (1, 3):
        x = torch.randn(200, dim, generator=torch.Generator().manual_seed(0))
        for scale in ("unbiased", "min_mse"):
            assert torch.isfinite(decoded(Drive(scale), x)).all()
    assert torch.allclose(decoded(Drive(), x[:, :1].contiguous()), x[:, :1])


@looped("dim", CNNS)
@looped("seed", ["sent", "derived"])
def test_bits_of_the_networks_stay_within_a_thousandth(dim: int, seed: str) -> None:
    known = SharedKnowledge(Key(), torch.arange(1), (dim,))
    payload = Drive(seed_cost=seed).encode(torch.ones(1, dim), known, Key())
    assert dim < int(payload.bits) < 1.001 * dim
    assert payload.paper_bits == dim


@looped(
    "options, line",
    [
        ({"scale": "max"}, "scale=max must be one of min_mse, unbiased"),
        ({"rotations": 0}, "rotations=0 must be a whole number, 1 or more"),
        ({"seed_cost": "none"}, "seed_cost=none must be one of sent, derived"),
    ],
)
def test_options_are_checked(options: dict, line: str) -> None:
    for codec in (Drive, Eden):
        with pytest.raises(ValueError, match=line):
            codec(**options)
