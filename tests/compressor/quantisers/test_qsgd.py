"""QSGD: its mean, its error in closed form and in bound, its ends, and how its levels are written."""

import torch

from fedcomp.compressor.quantisers.qsgd import QSGD
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from fedcomp.wire.coding import Digits, RunLength
from tests.compressor.mean_and_error import check_mean_and_error, decode_repeated, heavy
from tests.looped import looped

U = heavy(60)


def _error(u: torch.Tensor, levels: int) -> float:
    """(||u|| / s)^2 sum f (1 - f), in float64."""
    norm = u.double().norm()
    f = (levels * u.double().abs() / norm) % 1
    return float((norm / levels) ** 2 * (f * (1 - f)).sum())


@looped("levels", [1, 2, 7, 127, 300])
def test_mean_and_error_in_closed_form(levels: int) -> None:
    error = _error(U, levels)
    check_mean_and_error(decode_repeated(QSGD(levels, "model"), U, (60,)), U, U, error)
    bound = min(60 / levels**2, 60**0.5 / levels) * float(U.square().sum())
    assert 0 < error <= bound


def test_layers_add_up() -> None:
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
