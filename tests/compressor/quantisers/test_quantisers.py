"""Quantisers: mean and error in closed form, ends, scales by tensor, how levels are written."""

import pytest
import torch
from torch import Tensor

from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from fedcomp.wire.coding import Digits, RunLength
from tests.compressor.mean_and_error import check_mean_and_error, decode_repeated, heavy
from tests.looped import looped
from tests.parts import FP4, QSGD, Dense, Sign, StochasticSign, TernGrad


def test_half_precision_rounds_and_clamps() -> None:
    x = torch.tensor([[1.0, 1e6, -1e6, 1 + 2**-12]])
    known = SharedKnowledge(Key(), torch.arange(1), (4,))
    codec = Dense("float16")
    assert codec.decode(codec.encode(x, known, Key()), known).tolist() == [[1.0, 65504.0, -65504.0, 1.0]]


def _round_trip(codec: Sign, x: Tensor, layers: tuple[int, ...]) -> Tensor:
    known = SharedKnowledge(Key(), torch.arange(x.shape[0]), layers)
    return codec.decode(codec.encode(x, known, Key()), known)


def test_error_of_signs_in_closed_form() -> None:
    x = torch.randn(3, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    error = (_round_trip(Sign(granularity="model"), x, (20, 30)) - x).square().sum(1)
    assert torch.allclose(error, x.square().sum(1) - x.abs().sum(1) ** 2 / 50, rtol=1e-5)


def test_scales_by_tensor() -> None:
    x = torch.tensor([[1.0, -3.0, 10.0, -20.0, 30.0]])
    assert torch.equal(_round_trip(Sign(), x, (2, 3)), torch.tensor([[2.0, -2.0, 20.0, -20.0, 20.0]]))
    assert torch.allclose(_round_trip(Sign(granularity="model"), x, (2, 3)).abs(), torch.full((1, 5), 12.8))


def test_zero_counts_as_plus_one() -> None:
    x = torch.tensor([[0.0, -0.0, -1.0]])
    assert torch.equal(_round_trip(Sign("fixed", 0.5), x, (3,)), torch.tensor([[0.5, 0.5, -0.5]]))


U = heavy(60)
SCALES = {"max": float(U.abs().max()), "l2": float(U.norm()), "mean_abs": 1.5 * float(U.abs().mean()), "fixed": 2.0}


@looped("scale", SCALES)
def test_mean_and_error_of_stochastic_signs(scale: str) -> None:
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


def test_mean_and_error_of_terngrad() -> None:
    decoded = decode_repeated(TernGrad(granularity="model"), U, (60,))
    s = U.abs().max()
    assert set(decoded.unique().tolist()) == {-float(s), 0.0, float(s)}
    check_mean_and_error(decoded, U, U, float(s * U.abs().sum() - U.square().sum()))


def test_layers_of_terngrad_add_up() -> None:
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


def _coded(codec: FP4, x: Tensor, layers: tuple[int, ...] | None = None) -> tuple[Tensor, Tensor]:
    """(codes, decoded) of rows x."""
    common = SharedKnowledge(Key(("fp4",)), torch.arange(len(x)), layers or (x.shape[1],))
    payload = codec.encode(x, common, Key(("fp4", "sender")))
    return payload.fields["codes"].data, codec.decode(payload, common)


def test_all_codes() -> None:
    magnitudes = [0.0, *[2.0**power for power in range(-6, 1)]]
    x = 3.0 * torch.tensor([[-value for value in magnitudes[:0:-1]] + magnitudes])
    codes, decoded = _coded(FP4(), x)
    assert codes.tolist() == [list(range(15))]
    assert torch.equal(decoded, x)
    assert torch.equal(_coded(FP4("stochastic"), x)[1], x)
    assert _coded(FP4(), torch.tensor([[1.0, -0.0, -1e-9]]))[0].tolist() == [[14, 7, 7]]


def test_midpoints_go_up_and_the_largest_entry_is_exact() -> None:
    x = torch.tensor([[1.0, 0.75, 0.7499, -0.375, 2.0**-7, 0.99 * 2.0**-7]])
    assert _coded(FP4(), x)[1].tolist() == [[1.0, 1.0, 0.5, -0.5, 2.0**-6, 0.0]]


def test_scales_by_powers_of_two_and_zeros() -> None:
    x = torch.randn(2, 50, generator=torch.Generator().manual_seed(0))
    for codec in (FP4(), FP4("stochastic"), FP4(granularity="model")):
        assert torch.equal(_coded(codec, 4 * x, (30, 20))[1], 4 * _coded(codec, x, (30, 20))[1])
        assert not _coded(codec, torch.zeros(1, 5))[1].any()


def _error(u: Tensor, levels: int) -> float:
    """(||u|| / s)^2 sum f (1 - f), in float64."""
    norm = u.double().norm()
    f = (levels * u.double().abs() / norm) % 1
    return float((norm / levels) ** 2 * (f * (1 - f)).sum())


@looped("levels", [1, 2, 7, 127, 300])
def test_mean_and_error_of_qsgd(levels: int) -> None:
    error = _error(U, levels)
    check_mean_and_error(decode_repeated(QSGD(levels, "model"), U, (60,)), U, U, error)
    bound = min(60 / levels**2, 60**0.5 / levels) * float(U.square().sum())
    assert 0 < error <= bound


def test_layers_of_qsgd_add_up() -> None:
    parts = U.split([20, 40])
    check_mean_and_error(decode_repeated(QSGD(3), U, (20, 40)), U, U, sum(_error(part, 3) for part in parts))


def test_many_levels_are_the_identity() -> None:
    assert torch.allclose(decode_repeated(QSGD(2**23), U, (20, 40), 5), U.expand(5, -1), atol=3e-6 * float(U.norm()))


def test_one_entry_and_one_hot_vectors_are_exact() -> None:
    u = torch.tensor([0.0, 0.3, 0.0, -7.0])
    for levels in (1, 3, 10):
        assert torch.allclose(decode_repeated(QSGD(levels), u, (3, 1), 200), u.expand(200, 4), rtol=1e-6)


def test_tiny_vectors_make_no_nan() -> None:
    u = torch.tensor([1e-42, 0.0, -1e-45, 1e-30])
    for codec in (QSGD(), QSGD(1, "model")):
        assert torch.isfinite(decode_repeated(codec, u, (2, 2), 20)).all()


def test_codings_send_the_same_levels() -> None:
    known = SharedKnowledge(Key(), torch.arange(2), (20, 40))
    payloads = {coding: QSGD(7, coding=coding).encode(U.expand(2, -1), known, Key()) for coding in CODINGS}
    levels = payloads["auto"].fields["levels"].data
    assert all(torch.equal(payload.fields["levels"].data, levels) for payload in payloads.values())
    bits = {coding: payload.bits for coding, payload in payloads.items()}
    assert torch.equal(bits["auto"], torch.minimum(torch.minimum(bits["fixed"], bits["packed"]), bits["elias"]) + 1)


CODINGS = ("auto", "fixed", "packed", "elias")


def test_auto_takes_the_paper_s_code_for_sparse_levels_and_digits_for_dense_ones() -> None:
    known = SharedKnowledge(Key(), torch.arange(1), (10_000,))
    sparse = QSGD(1).encode(torch.randn(1, 10_000, generator=torch.Generator().manual_seed(0)), known, Key())
    levels = sparse.fields["levels"].data
    assert 0 < int((levels != 1).sum()) < 300  # about ||u||_1 / ||u|| = 80
    assert sparse.bits.tolist() == [int(RunLength(1).bits(levels)) + 1 + 32]
    dense = QSGD(127).encode(torch.ones(1, 100), SharedKnowledge(Key(), torch.arange(1), (100,)), Key())
    assert dense.bits.tolist() == [Digits(255).fixed_bits(100) + 1 + 32] == [833]
