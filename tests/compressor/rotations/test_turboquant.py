"""TurboQuant beside EDEN: the same codes, and the error with a Gaussian matrix."""

import math

import pytest
import torch

from fedcomp.compressor.rotations.eden import Eden
from fedcomp.compressor.rotations.lloyd_max import lloyd_max
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


@looped("bits", [1, 2, 3, 4])
def test_error_with_a_gaussian_matrix_is_the_papers(bits: int) -> None:
    x = vector("gaussian", 256)
    y = decoded(TurboQuantProd(bits, "gaussian"), x, 100)
    expected = (math.pi / 2 - 1 / 256) * LEFT[bits - 1]  # 1.567, 0.569, 0.184, 0.0541; the paper prints 0.047
    mean, deviation = error(y, x)
    assert mean == pytest.approx(expected, rel=0.01 + 4 * deviation / expected)
    assert 0.8 < bias(y, x) < 1.2


def test_second_matrix_is_not_the_first() -> None:
    # In R's coordinates what is left of z is far from normal, and z~ + a ||rho|| R^T sign(R rho) would not be unbiased.
    known = SharedKnowledge(Key(("draws",)), torch.arange(1), (64,))
    x = torch.zeros(1, 64)
    x[0, 3] = 1.0
    codec = TurboQuantProd(2, seed_cost="derived")
    signs = codec.encode(x, known, Key()).fields["signs"].data
    assert 8 < int(signs.sum()) < 56  # R R of one entry is one entry: all signs but one would be of one kind
