"""PermK: parts are disjoint and cover the vector, equal vectors have an exact mean, and nobody is favoured."""

import pytest
import torch

from fedcomp.compressor.sparsifiers.permk import PermK
from fedcomp.random.keys import Key
from tests.compressor.round_trips import joint_draws, known
from tests.looped import looped

CODEC = PermK()


@looped("num, dim", [(3, 12), (5, 12), (1, 7), (7, 7), (4, 1001)])
def test_parts_cover_the_vector_once(num: int, dim: int) -> None:
    sent = joint_draws(CODEC, torch.ones(num, dim), 1)[0]
    assert (sent.count_nonzero(0) == 1).all()
    assert set(sent.count_nonzero(1).tolist()) <= {dim // num, -(-dim // num)}


@looped("num, dim", [(3, 12), (5, 12), (1, 7)])
def test_mean_of_equal_vectors_is_exact(num: int, dim: int) -> None:
    x = torch.randn(1, dim, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(joint_draws(CODEC, x.expand(num, -1), 1)[0].mean(0), x[0])


@pytest.mark.parametrize(("num", "dim"), [(12, 5), (10, 5)])
def test_more_senders_than_entries(num: int, dim: int) -> None:
    sent = joint_draws(CODEC, torch.ones(num, dim), 1)[0]
    assert (sent.count_nonzero(1) == 1).all()
    assert set(sent.count_nonzero(0).tolist()) <= {num // dim, -(-num // dim)}


@looped("num, dim", [(3, 7), (5, 12), (7, 4)])
def test_every_sender_gets_every_entry_equally_often(num: int, dim: int) -> None:
    hits = (joint_draws(CODEC, torch.ones(num, dim), 800) != 0).double().mean(0)
    share = 1 / min(max(num, 1), dim)
    assert ((hits - share).abs() < 5 * (share * (1 - share) / 800) ** 0.5).all()


def test_bits_are_those_of_the_parts() -> None:
    payload = CODEC.encode(torch.ones(5, 12), known(5, 12), Key())
    assert sorted(payload.bits.tolist()) == [64, 64, 64, 96, 96]
