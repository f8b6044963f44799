"""TernGrad: its mean and its error in closed form, with and without clipping."""

import torch

from fedcomp.compressor.quantisers.terngrad import TernGrad
from tests.compressor.mean_and_error import check_mean_and_error, decode_repeated, heavy

U = heavy(60)


def test_mean_and_error_in_closed_form() -> None:
    decoded = decode_repeated(TernGrad(granularity="model"), U, (60,))
    s = U.abs().max()
    assert set(decoded.unique().tolist()) == {-float(s), 0.0, float(s)}
    check_mean_and_error(decoded, U, U, float(s * U.abs().sum() - U.square().sum()))


def test_layers_add_up() -> None:
    parts = U.split([20, 40])
    error = sum(float(part.abs().max() * part.abs().sum() - part.square().sum()) for part in parts)
    check_mean_and_error(decode_repeated(TernGrad(), U, (20, 40)), U, U, error)


def test_clipping_is_to_standard_deviations_and_scales_to_what_is_left() -> None:
    bound = 1.2 * U.std(correction=0)
    clipped = U.clamp(-bound, bound)
    assert not torch.equal(clipped, U)
    decoded = decode_repeated(TernGrad(1.2, "model"), U, (60,))
    error = bound * clipped.abs().sum() - clipped.square().sum() + (clipped - U).square().sum()
    check_mean_and_error(decoded, U, clipped, float(error))
    # Nothing beyond the threshold: the scale is the largest entry, not the threshold.
    mild = torch.tensor([1.0, -1.0, 1.0, -1.0])
    assert torch.equal(decode_repeated(TernGrad(2.5), mild, (4,), 50), mild.expand(50, 4))


def test_equal_entries_have_no_outliers() -> None:
    u = torch.tensor([3.1, -2.7] + 10 * [0.1])
    assert torch.equal(decode_repeated(TernGrad(2.5), u, (1, 1, 10), 50), u.expand(50, 12))
