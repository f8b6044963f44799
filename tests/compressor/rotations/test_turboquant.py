"""TurboQuant beside EDEN: the same codes, the errors of both of its forms, their bias, their order, and their bits."""

from __future__ import annotations

import math

import pytest
import torch

from fedcomp.compressor import Compressor
from fedcomp.compressor.rotations.eden import Eden
from fedcomp.compressor.rotations.lloyd_max import lloyd_max
from fedcomp.compressor.rotations.rotation import LARGEST
from fedcomp.compressor.rotations.turboquant_prod import TurboQuantProd
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from tests.compressor.rotations.vectors import bias, decoded, error, vector
from tests.looped import looped

LEFT = [1.0] + [lloyd_max(bits).distortion for bits in range(1, 5)]


@looped("bits", [1, 2, 4])
def test_codes_are_edens_and_decodes_are_parallel(bits: int) -> None:
    known = SharedKnowledge(Key(("codes",)), torch.arange(3), (700,))
    x = torch.randn(3, 700, generator=torch.Generator().manual_seed(1))
    turbo, eden = Eden(bits, "norm"), Eden(bits)
    mine, theirs = (codec.encode(x, known, Key()) for codec in (turbo, eden))
    assert torch.equal(mine.fields[f"codes{bits}"].data, theirs.fields[f"codes{bits}"].data)
    ours, others = (
        torch.nn.functional.normalize(one) for one in (turbo.decode(mine, known), eden.decode(theirs, known))
    )
    torch.testing.assert_close(ours, others, rtol=1e-4, atol=1e-6)
    assert (mine.bits == theirs.bits).all()


@looped("kind, bits", [("gaussian", 1), ("lognormal", 2), ("lognormal", 3), ("lognormal", 4)])
def test_error_of_the_first_form_is_the_quantisers(kind: str, bits: int) -> None:
    x = vector(kind, 8192)
    y = decoded(Eden(bits, "norm"), x, 50)
    mean, deviation = error(y, x)
    assert mean == pytest.approx(LEFT[bits], rel=0.01 + 4 * deviation / LEFT[bits])
    along = (y @ x) / x.square().sum()
    assert float(along.mean()) == pytest.approx(1 - LEFT[bits], abs=4 * float(along.std()) / 50**0.5 + 1e-3)


@pytest.mark.parametrize(("bits", "floor"), [(1, 0.1321), pytest.param(2, 0.0138, marks=pytest.mark.thorough)])
def test_first_form_keeps_its_error_however_many_senders(bits: int, floor: float) -> None:
    x = vector("lognormal", 2048)
    y = decoded(Eden(bits, "norm"), x, 200)
    assert float((y.mean(0) - x).square().sum() / x.square().sum()) == pytest.approx(
        floor + (LEFT[bits] - floor) / 200, rel=0.04
    )
    z = decoded(TurboQuantProd(bits), x, 200)
    assert float((z.mean(0) - x).square().sum() / x.square().sum()) < 0.2 * floor


@looped("kind, bits", [("gaussian", 1), ("lognormal", 2), ("lognormal", 4), ("sparse", 3)])
def test_error_and_mean_of_the_second_form(kind: str, bits: int) -> None:
    x = vector(kind, 8192)
    y = decoded(TurboQuantProd(bits, rotations=2), x, 60)
    mean, deviation = error(y, x)
    expected = (math.pi / 2 - 1) * LEFT[bits - 1]
    assert mean == pytest.approx(expected, rel=0.005 + 4 * deviation / expected)
    assert 0.9 < bias(y, x) < 1.1


@looped("bits", [1, 2, 3, 4])
def test_error_with_a_gaussian_matrix_is_the_papers(bits: int) -> None:
    x = vector("gaussian", 256)
    y = decoded(TurboQuantProd(bits, "gaussian"), x, 100)
    expected = (math.pi / 2 - 1 / 256) * LEFT[bits - 1]  # 1.567, 0.569, 0.184, 0.0541; the paper prints 0.047
    mean, deviation = error(y, x)
    assert mean == pytest.approx(expected, rel=0.01 + 4 * deviation / expected)
    assert 0.8 < bias(y, x) < 1.2


@looped("bits", [2, 3, 4])
def test_order_at_equal_bits(bits: int) -> None:
    x = vector("lognormal", 1024)
    codecs = (Eden(bits), TurboQuantProd(bits), TurboQuantProd(bits, "gaussian"))
    eden, rotation, gaussian = (error(decoded(codec, x, 12), x)[0] for codec in codecs)
    assert eden < 0.8 * rotation < 0.8 * 0.7 * gaussian


def test_second_matrix_is_not_the_first() -> None:
    # In R's coordinates what is left of z is far from normal, and z~ + a ||rho|| R^T sign(R rho) would not be unbiased.
    known = SharedKnowledge(Key(("draws",)), torch.arange(1), (64,))
    x = torch.zeros(1, 64)
    x[0, 3] = 1.0
    codec = TurboQuantProd(2, seed_cost="derived")
    signs = codec.encode(x, known, Key()).fields["signs"].data
    assert 8 < int(signs.sum()) < 56  # R R of one entry is one entry: all signs but one would be of one kind


@looped("bits", [1, 2, 5])
@looped("residual", ["rotation", "gaussian"])
def test_zero_and_tiny_vectors(bits: int, residual: str) -> None:
    codec = TurboQuantProd(bits, residual)
    for dim in (1, 2, 3, 7):
        assert not decoded(codec, torch.zeros(dim), 2).any()
        assert torch.isfinite(decoded(codec, torch.randn(dim), 20)).all()
    assert torch.allclose(decoded(TurboQuantProd(1), torch.tensor([2.5]), 3), torch.full((3, 1), 2.5))


def test_bits_of_a_network() -> None:
    dim, pieces = LARGEST + 5, 2
    for codec, expected in (
        (Eden(2, "norm"), 2 * dim + 32 * pieces + 64),
        (TurboQuantProd(1), dim + 32 * pieces + 64),
        (TurboQuantProd(3, seed_cost="derived"), 3 * dim + 64 * pieces),
    ):
        payload = codec.encode(torch.ones(1, dim), SharedKnowledge(Key(), torch.arange(1), (dim,)), Key())
        assert payload.bits.tolist() == [expected]
        assert payload.paper_bits == codec.bits * dim + (0 if isinstance(codec, Eden) else 32)


@looped(
    "options, line",
    [
        ({"bits": 0}, "bits=0 must be a whole number from 1 to 8"),
        ({"bits": 2.5}, r"bits=2.5 must be a whole number from 1 to 8.*compressor=eden takes fractions"),
        ({"bits": 9}, "bits=9 must be"),
        ({"residual": "qr"}, "residual=qr must be one of rotation, gaussian"),
        ({"rotations": 0}, "rotations=0 must be a whole number"),
        ({"seed_cost": "none"}, "seed_cost=none must be one of sent, derived"),
    ],
)
def test_options_are_checked(options: dict, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        TurboQuantProd(**options)


def test_combinations_without_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="residual=gaussian needs D\\^2 draws.*residual=rotation.*D = 4097"):
        Compressor(TurboQuantProd(2, "gaussian")).init(1, torch.zeros(4097))
    with pytest.raises(ValueError, match="feedback=error makes no sense for TurboQuantProd"):
        Compressor.of(TurboQuantProd(), "error")
    Compressor.of(Eden(1, "norm"), "error")
