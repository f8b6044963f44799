"""EDEN, and DRIVE, which it is at one bit: quantisers, projections, one-hot vectors, scales of pieces."""

import math

import pytest
import torch
from torch import Tensor

from fedcomp.compressor.rotations.drive import Drive
from fedcomp.compressor.rotations.eden import Eden, _others
from fedcomp.compressor.rotations.lloyd_max import lloyd_max
from fedcomp.compressor.rotations.rotation import LARGEST
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from tests.looped import looped

# J. Max, "Quantizing for minimum distortion", IRE Trans. Inf. Theory 1960, table I: N(0, 1), here with more digits.
DISTORTION = {1: 1 - 2 / math.pi, 2: 0.117482, 3: 0.034548, 4: 0.009501, 5: 0.0025047, 6: 0.00064424}


def decoded(codec: Drive | Eden, x: Tensor) -> Tensor:
    known = SharedKnowledge(Key(("drive test",)), torch.arange(len(x)), (x.shape[1],))
    return codec.decode(codec.encode(x, known, known.key.fold_in("coin")), known)


def dense(num: int, dim: int) -> Tensor:
    """One vector in all rows, whose senders draw rotations of their own."""
    return torch.randn(1, dim, generator=torch.Generator().manual_seed(dim)).expand(num, dim)


def test_distortions_are_those_of_the_table() -> None:
    for bits, expected in DISTORTION.items():
        assert lloyd_max(bits).distortion == pytest.approx(expected, abs=5e-6 * expected**0.5)


@looped("bits", range(1, 9))
def test_centroids_are_means_and_boundaries_are_midway(bits: int) -> None:
    quantiser = lloyd_max(bits)
    centroids = torch.tensor(quantiser.centroids, dtype=torch.float64)
    edges = torch.tensor([-12.0, *quantiser.boundaries, 12.0], dtype=torch.float64)
    assert torch.allclose(edges[1:-1], (centroids[1:] + centroids[:-1]) / 2)
    assert (centroids.diff() > 0).all()
    for number in (0, len(centroids) // 3, len(centroids) - 1):
        at = torch.linspace(float(edges[number]), float(edges[number + 1]), 200_001, dtype=torch.float64)
        density = torch.exp(-at.square() / 2)
        mean = torch.trapezoid(at * density, at) / torch.trapezoid(density, at)
        assert float(mean) == pytest.approx(float(centroids[number]), abs=1e-8)


def test_one_bit_is_drive() -> None:
    for scale in ("unbiased", "min_mse"):
        for dim in (1, 47, 600, LARGEST + 5):
            x = dense(3, dim)
            assert torch.equal(decoded(Eden(1, scale), x), decoded(Drive(scale), x))


@looped("bits", [0.3, 1, 1.5, 2, 4])
def test_projection_is_one_in_every_draw(bits: float) -> None:
    x = dense(50, 1500)
    projection = (decoded(Eden(bits), x).double() * x).sum(1) / x.double().square().sum(1)
    assert (projection - 1).abs().max() < 1e-6


@looped("codec", [*map(Eden, range(1, 9)), Drive("min_mse"), Drive("unbiased")])
def test_one_hot_is_exact(codec: Drive | Eden) -> None:
    x = torch.zeros(2, 64)
    x[:, 5] = torch.tensor([3.0, -0.1])
    torch.testing.assert_close(decoded(codec, x), x, rtol=1e-6, atol=1e-6)


def test_pieces_of_very_different_size_keep_their_own_scale() -> None:
    x = torch.cat((dense(2, LARGEST), 1e-4 * dense(2, 700)), 1)
    y = decoded(Eden(4), x)
    for part in (slice(LARGEST), slice(LARGEST, None)):
        error = (y - x)[:, part].square().sum(1) / x[:, part].square().sum(1)
        assert (error < 0.012).all()


def test_others_are_what_is_left() -> None:
    places = Key().choice(torch.arange(5), 4, 11)
    for row, others in zip(places.tolist(), _others(places, 11).tolist()):
        assert others == [place for place in range(11) if place not in row]
