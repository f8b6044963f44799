"""Vectors whose entries are not exchangeable: errors whose closed form knows no order of entries are what it says.

A rotation that does not mix all entries of a piece passes every test whose vectors are alike all along.
"""

import pytest
import torch
from torch import Tensor

from fedcomp.compressor.projections.rand_proj import RandProj
from fedcomp.compressor.rotations.quic_fl.codec import QuicFL
from fedcomp.compressor.rotations.rotation import LARGEST
from fedcomp.compressor.rotations.turboquant_prod import TurboQuantProd
from tests.compressor.mean_and_error import decode_repeated
from tests.compressor.rotations.vectors import bias, decoded, error
from tests.parts import Codec, Drive, Eden, Induced, RandK, RandomMask, Wangni
from tests.thorough import thorough

DRAWS = {1009: 100, 2047: 100, 61_706: 8, LARGEST + 3: 4}
"""{D: messages}. 2,047 entries go through two transforms of 1,024, which have one entry in common."""
CODECS: list[Codec] = [
    *(Drive(), Drive("unbiased"), Eden(0.5), Eden(1.5), Eden(2), Eden(4, "min_mse"), Eden(2, "norm")),
    *(TurboQuantProd(1), TurboQuantProd(3), QuicFL(1), QuicFL(3)),
    *(RandK(0.2), RandomMask(0.2), Induced(0.2), Wangni(0.2), RandProj(0.2)),
]


def uneven(kind: str, dim: int) -> Tensor:
    """[D] normal entries: the second half a tenth as large; five layers of unequal size; most entries 0, in blocks."""
    sizes, scales = {
        "halves": ((1 / 2, 1 / 2), (1.0, 0.1)),
        "layers": ((1 / 16, 1 / 16, 1 / 2, 5 / 16, 1 / 16), (1.0, 0.3, 0.02, 0.05, 0.5)),
        "zeros": ((1 / 8, 1 / 8, 1 / 2, 1 / 8, 1 / 8), (0.0, 1.0, 0.0, 1.0, 0.0)),
    }[kind]
    ends = [round(dim * share) for share in torch.tensor(sizes, dtype=torch.float64).cumsum(0).tolist()]
    scale = torch.cat([torch.full((end - begin,), one) for begin, end, one in zip([0, *ends], ends, scales)])
    return torch.randn(dim, generator=torch.Generator().manual_seed(dim)) * scale


@pytest.mark.parametrize("dim", [1009, LARGEST + 3, *thorough([2047, 61_706])])
@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_error_is_its_closed_form_and_its_mean_is_zero(codec: Codec, dim: int) -> None:
    for kind in ("halves", "layers", "zeros"):
        x, num = uneven(kind, dim), DRAWS[dim]
        alone = isinstance(codec, QuicFL)  # its senders share a rotation
        y = decoded(codec, x, num) if alone else decode_repeated(codec, x, (dim,), num)
        mean, deviation = error(y, x)
        expected = float(codec.expected_error(x[None])) / float(x.double().square().sum())
        assert mean == pytest.approx(expected, abs=0.015 * expected + 4 * deviation), kind
        assert bias(y, x) < 2 or not codec.unbiased, kind
