"""Importance sampling: lambda, its error, never worse than Rand-k, and both ways to write values."""

import pytest
import torch

from fedcomp.compressor.sparsifiers.randk import RandK
from fedcomp.compressor.sparsifiers.wangni import Wangni
from tests.compressor.round_trips import draws, known
from tests.looped import looped


def _rows(num: int = 5, dim: int = 12) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(num, dim, generator=generator) * torch.rand(num, dim, generator=generator).mul(4).exp()


def _iterated(x: torch.Tensor, k: int) -> torch.Tensor:
    """The paper's own loop: scale the unsaturated probabilities until none exceeds 1."""
    p = (k * x.abs() / x.abs().sum()).clamp(max=1)
    for _ in range(len(x)):
        full = p >= 1
        p = torch.where(full, torch.ones_like(p), p * (k - full.sum()) / p[~full].sum()).clamp(max=1)
    return p


@looped("k", [1, 4, 9])
def test_probabilities_are_those_of_the_papers_loop(k: int) -> None:
    for x in _rows():
        step = Wangni(k=k)._step(x[None])
        p = torch.where(x.abs() >= step, torch.ones_like(x), x.abs() / step)
        assert torch.allclose(p, _iterated(x.double(), k).float(), rtol=1e-5)
        assert float(p.sum()) == pytest.approx(k, rel=1e-5)


def test_error_is_no_larger_than_of_rand_k() -> None:
    assert (Wangni(k=4).expected_error(_rows()) < RandK(k=4).expected_error(_rows())).all()


def test_k_entries_are_sent_on_average() -> None:
    codec, x = Wangni(k=4), _rows(1).expand(4000, -1)
    shared = known(4000, 12)
    sent = codec.encode(x, shared, shared.key).fields["sent_values"].count.double()
    assert abs(float(sent.mean()) - 4) < 5 * float(sent.std()) / 4000**0.5


def test_degenerate_vectors() -> None:
    sparse = torch.zeros(1, 12)
    sparse[0, [2, 7]] = torch.tensor([3.0, -1.0])
    for values in ("float", "sign"):
        codec = Wangni(k=4, values=values)
        assert torch.equal(draws(codec, sparse, 1)[0], sparse)  # no more than k non-zeros: all sent as they are
        assert not draws(codec, torch.zeros(2, 12), 1).any()
        full = _rows()
        assert torch.equal(draws(Wangni(k=12, values=values), full, 1)[0], full)


def test_signs_are_cheaper_than_floats() -> None:
    x, shared = torch.randn(1, 5000, generator=torch.Generator().manual_seed(0)), known(1, 5000)
    bits = {values: int(Wangni(0.03, values=values).encode(x, shared, shared.key).bits) for values in ("float", "sign")}
    assert bits["sign"] < 0.4 * bits["float"]
