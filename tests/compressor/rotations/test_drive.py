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

LEAST, UNBIASED = 1 - 2 / math.pi, math.pi / 2 - 1


def decoded(codec: Drive | Eden, x: Tensor, *name: int) -> Tensor:
    known = SharedKnowledge(Key(("drive test", *name)), torch.arange(len(x)), (x.shape[1],))
    return codec.decode(codec.encode(x, known, known.key.fold_in("coin")), known)


def dense(num: int, dim: int, heavy: bool = False) -> Tensor:
    """One vector in all rows, whose senders draw rotations of their own: normal entries, or log-normal ones."""
    x = torch.randn(1, dim, generator=torch.Generator().manual_seed(dim))
    return (x.exp() if heavy else x).expand(num, dim)


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
