"""Rand-k: closed-form error, degenerate cases, bits, and places that both ends draw."""

import torch

from fedcomp.compressor.sparsifiers.randk import RandK
from fedcomp.random.keys import Key
from tests.compressor.round_trips import draws, known, mean_square
from tests.looped import looped

DIM, NUM = 12, 5


def _rows(num: int = NUM, dim: int = DIM, seed: int = 0) -> torch.Tensor:
    return torch.randn(num, dim, generator=torch.Generator().manual_seed(seed))


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


def test_sent_seed_is_all_that_the_receiver_needs() -> None:
    codec, x = RandK(0.5), _rows()
    payload = codec.encode(x, known(NUM, DIM, "sender's view"), Key(("coin",)))
    elsewhere = known(NUM, DIM, "another round")
    assert torch.equal(codec.decode(payload, elsewhere), codec.decode(payload, known(NUM, DIM, "sender's view")))
