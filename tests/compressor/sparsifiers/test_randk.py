"""Rand-k: closed-form error, degenerate cases, bits, and places that both ends draw."""

from __future__ import annotations

import pytest
import torch

from fedcomp.compressor.sparsifiers.randk import RandK
from fedcomp.random.keys import Key
from tests.compressor.round_trips import draws, known, mean_square
from tests.looped import looped

DIM, NUM = 12, 5


def _rows(num: int = NUM, dim: int = DIM, seed: int = 0) -> torch.Tensor:
    return torch.randn(num, dim, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("codec", "factor"), [(RandK(k=4), 12 / 4 - 1), (RandK(k=4, scale="none"), 1 - 4 / 12)])
def test_error_is_the_closed_form(codec: RandK, factor: float) -> None:
    x = _rows()
    assert torch.allclose(codec.expected_error(x), factor * x.double().square().sum(1))
    error, deviation = mean_square(draws(codec, x, 4000) - x)
    assert ((error - codec.expected_error(x)).abs() < 5 * deviation).all()


@looped("places", ["seed", "index", "bitmap", "rice"])
def test_all_entries_are_exact(places: str) -> None:
    x = _rows()
    assert torch.equal(draws(RandK(1.0, places=places), x, 1)[0], x)
    assert torch.equal(draws(RandK(k=DIM, places=places), x, 1)[0], x)


def test_senders_draw_independently() -> None:
    # One mask for all would make the mean's error (D/k - 1)||mean||^2, here n times as large.
    codec, one = RandK(k=3), _rows(1)
    x = one.expand(NUM, -1)
    error, deviation = mean_square(draws(codec, x, 4000).mean(1, keepdim=True) - one)
    wanted = float(codec.expected_error(one)) / NUM
    assert abs(float(error) - wanted) < 5 * float(deviation)
    assert wanted < float(codec.expected_error(one)) / 2


def test_bits() -> None:
    # k = 0.03 D. The paper (D. Jhunjhunwala et al. 2021) counts values alone, 32 k bits: 0.96 bits per parameter.
    dim, x = 1_181_536, torch.ones(1, 1_181_536)
    k = round(0.03 * dim)
    bits = {
        name: int(codec.encode(x, known(1, dim), Key()).bits)
        for name, codec in {
            "sent": RandK(),
            "derived": RandK(seed_cost="derived"),
            "index": RandK(places="index"),
        }.items()
    }
    assert bits == {"sent": 32 * k + 64, "derived": 32 * k, "index": k * (32 + 21)}
    assert bits["sent"] / dim == pytest.approx(0.960, abs=5e-4)
    assert bits["index"] / dim == pytest.approx(1.590, abs=5e-4)


def test_sent_seed_is_all_that_the_receiver_needs() -> None:
    codec, x = RandK(0.5), _rows()
    payload = codec.encode(x, known(NUM, DIM, "sender's view"), Key(("coin",)))
    elsewhere = known(NUM, DIM, "another round")
    assert torch.equal(codec.decode(payload, elsewhere), codec.decode(payload, known(NUM, DIM, "sender's view")))


@looped(
    "options, line",
    [
        ({"k": 0}, "k=0 must be a whole number, 1 or more, or null"),
        ({"k": 2.5}, "k=2.5 must be a whole number, 1 or more, or null"),
        ({"fraction": 1.5}, "fraction=1.5 must be a number in"),
        ({"scale": "up"}, "scale=up must be one of unbiased, none"),
        ({"places": "huffman"}, "places=huffman must be one of seed, auto"),
        ({"seed_cost": "free"}, "seed_cost=free must be one of sent, derived"),
    ],
)
def test_wrong_options(options, line) -> None:
    with pytest.raises(ValueError, match=line):
        RandK(**options)


def test_k_beyond_the_vector_is_refused() -> None:
    with pytest.raises(ValueError, match=r"k=13 is more than the D = 12 entries"):
        RandK(k=13).check_dim(DIM)
    with pytest.raises(ValueError, match=r"k=13 is more than the D = 12 entries"):
        draws(RandK(k=13), _rows(), 1)
