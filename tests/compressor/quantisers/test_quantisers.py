"""Quantisers: mean and error in closed form, ends, scales by tensor, how levels are written."""

import torch
from torch import Tensor

from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from fedcomp.wire.coding import Digits, RunLength, Shortest, Unsigned
from tests.compressor.round_trips import check_mean_and_error, decode_repeated, gauss, heavy, round_trip
from tests.looped import looped
from tests.parts import FP4, QSGD, Codec, Dense, Sign, StochasticSign, TernGrad

U = heavy(60)


def test_half_precision_rounds_and_clamps() -> None:
    x = torch.tensor([[1.0, 1e6, -1e6, 1 + 2**-12]])
    assert round_trip(Dense("float16"), x).tolist() == [[1.0, 65504.0, -65504.0, 1.0]]


def test_error_of_signs_in_closed_form() -> None:
    x = gauss(3, 50)
    error = (round_trip(Sign(granularity="model"), x, (20, 30)) - x).square().sum(1)
    assert torch.allclose(error, x.square().sum(1) - x.abs().sum(1) ** 2 / 50, rtol=1e-5)


def test_signs_have_scales_by_tensor() -> None:
    x = torch.tensor([[1.0, -3.0, 10.0, -20.0, 30.0]])
    assert torch.equal(round_trip(Sign(), x, (2, 3)), torch.tensor([[2.0, -2.0, 20.0, -20.0, 20.0]]))
    assert torch.allclose(round_trip(Sign(granularity="model"), x, (2, 3)).abs(), torch.full((1, 5), 12.8))


def test_zero_counts_as_plus_one() -> None:
    assert round_trip(Sign("fixed", 0.5), torch.tensor([[0.0, -0.0, -1.0]])).tolist() == [[0.5, 0.5, -0.5]]


OF_TENSOR = {"max": lambda u: u.abs().max(), "l2": lambda u: u.norm(), "mean_abs": lambda u: 1.5 * u.abs().mean()}


@looped("scale", OF_TENSOR)
def test_each_tensor_has_its_scale(scale: str) -> None:
    decoded = decode_repeated(StochasticSign(scale, factor=1.5), U, (20, 39, 1), num=3)
    scales = torch.cat([OF_TENSOR[scale](part).expand(len(part)) for part in U.split([20, 39, 1])])
    assert torch.allclose(decoded.abs(), scales.expand(3, -1), rtol=1e-6)


EXACT = [
    (StochasticSign(), [1.0, -1.0, 1.0], (3,)),
    (StochasticSign("l2"), [1.0, -1.0, 1.0], (1, 1, 1)),
    (TernGrad(2.5), [1.0, -1.0, 1.0, -1.0], (4,)),  # nothing beyond the threshold: the scale is the largest entry
    (TernGrad(2.5), [3.1, -2.7] + 10 * [0.1], (1, 1, 10)),  # equal entries have no outliers
]


@looped("codec, values, layers", EXACT)
def test_entries_at_the_scale_are_certain(codec: Codec, values: list[float], layers: tuple[int, ...]) -> None:
    u = torch.tensor(values)
    assert torch.equal(decode_repeated(codec, u, layers, 500), u.expand(500, -1))


def _signs(c: Tensor, a: float) -> float:
    """Of entries that are clipped to c, and sent as a or -a."""
    return float((a**2 - c.square()).sum() + (c - U).square().sum())


def _terngrad(u: Tensor) -> float:
    return float(u.abs().max() * u.abs().sum() - u.square().sum())


def _qsgd(u: Tensor, levels: int = 3) -> float:
    """(||u|| / s)^2 sum f (1 - f), in float64."""
    norm = u.double().norm()
    f = (levels * u.double().abs() / norm) % 1
    return float((norm / levels) ** 2 * (f * (1 - f)).sum())


SCALES = {"max": float(U.abs().max()), "l2": float(U.norm()), "mean_abs": 1.5 * float(U.abs().mean()), "fixed": 2.0}
CLIPPED, PARTS = U.clamp(-1.2 * U.std(correction=0), 1.2 * U.std(correction=0)), U.split([20, 40])
CLOSED = [
    *(
        (StochasticSign(name, value=2.0, factor=1.5, granularity="model"), U.clamp(-a, a), _signs(U.clamp(-a, a), a))
        for name, a in SCALES.items()
    ),
    (TernGrad(), U, sum(map(_terngrad, PARTS))),
    (TernGrad(granularity="model"), U, _terngrad(U)),
    # clipped to standard deviations, and the scale is that of what is left
    (TernGrad(1.2, "model"), CLIPPED, _terngrad(CLIPPED) + float((CLIPPED - U).square().sum())),
    (QSGD(3), U, sum(map(_qsgd, PARTS))),
    *((QSGD(levels, "model"), U, _qsgd(U, levels)) for levels in (1, 2, 7, 127, 300)),
]


@looped("codec, mean, error", CLOSED)
def test_mean_and_error_in_closed_form(codec: Codec, mean: Tensor, error: float) -> None:
    check_mean_and_error(decode_repeated(codec, U, (20, 40)), U, mean, error)
    assert torch.equal(mean, U) == codec.unbiased


def test_all_codes_of_fp4() -> None:
    magnitudes = [0.0, *[2.0**power for power in range(-6, 1)]]
    x = 3.0 * torch.tensor([[-value for value in magnitudes[:0:-1]] + magnitudes])
    for given, codes in ((x, list(range(15))), (torch.tensor([[1.0, -0.0, -1e-9]]), [14, 7, 7])):
        payload = FP4().encode(given, SharedKnowledge(Key(), torch.arange(1), (given.shape[1],)), Key())
        assert payload.fields["codes"].data.tolist() == [codes]
    for rounding in ("nearest", "stochastic"):
        assert torch.equal(round_trip(FP4(rounding), x), x)


def test_midpoints_go_up_and_the_largest_entry_is_exact() -> None:
    x = torch.tensor([[1.0, 0.75, 0.7499, -0.375, 2.0**-7, 0.99 * 2.0**-7]])
    assert round_trip(FP4(), x).tolist() == [[1.0, 1.0, 0.5, -0.5, 2.0**-6, 0.0]]


def test_fp4_scales_by_powers_of_two_and_zeros() -> None:
    x = gauss(2, 50)
    for codec in (FP4(), FP4("stochastic"), FP4(granularity="model")):
        assert torch.equal(round_trip(codec, 4 * x, (30, 20)), 4 * round_trip(codec, x, (30, 20)))
        assert not round_trip(codec, torch.zeros(1, 5)).any()


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
    known, codings = SharedKnowledge(Key(), torch.arange(2), (20, 40)), ("auto", "fixed", "packed", "elias")
    payloads = [QSGD(7, coding=coding).encode(U.expand(2, -1), known, Key()) for coding in codings]
    levels = payloads[0].fields["levels"].data
    assert all(torch.equal(payload.fields["levels"].data, levels) for payload in payloads)
    auto, *others = (payload.bits for payload in payloads)
    assert torch.equal(auto, torch.stack(others).amin(0) + 1)


def test_auto_takes_the_paper_s_code_for_sparse_levels_and_digits_for_dense_ones() -> None:
    sparse = QSGD(1).encode(gauss(1, 10_000), SharedKnowledge(Key(), torch.arange(1), (10_000,)), Key())
    levels = sparse.fields["levels"].data
    assert 0 < int((levels != 1).sum()) < 300  # about ||u||_1 / ||u|| = 80
    assert sparse.bits.tolist() == [int(RunLength(1).bits(levels)) + 1 + 32]
    dense = QSGD(127).encode(torch.ones(1, 100), SharedKnowledge(Key(), torch.arange(1), (100,)), Key())
    assert dense.bits.tolist() == [Digits(255).fixed_bits(100) + 1 + 32] == [833]
    assert QSGD(1).level_coding(4) == Shortest((Unsigned(2, 3), RunLength(1)))  # as long as four trits
