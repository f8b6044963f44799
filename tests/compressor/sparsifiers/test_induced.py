"""Induced compressor: its random part avoids the largest entries, and is as long as theirs."""

import torch

from fedcomp.compressor.sparsifiers.induced import Induced
from tests.compressor.round_trips import draws, known


def _rows() -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(5, 13, generator=generator) * torch.rand(5, 13, generator=generator).mul(2).exp()


def test_restricted_places_are_uniform_over_the_rest() -> None:
    codec, x, num = Induced(k=6, restricted=True), _rows()[:1].expand(6000, -1), 6000
    shared = known(num, 13)
    largest = x.abs().topk(3, dim=1, sorted=False).indices.sort(dim=1).values
    payload = codec.encode(x, shared, shared.key)
    drawn = codec._drawn(payload, largest, shared)
    hits = torch.zeros(13).index_add_(0, drawn.flatten(), torch.ones(drawn.numel()))
    assert not hits[largest[0]].any()
    rest = [place for place in range(13) if place not in largest[0].tolist()]
    # Each is drawn with probability 3/10: standard deviation sqrt(6000 * 0.3 * 0.7) = 35.
    assert ((hits[rest] - 0.3 * num).abs() < 5 * 35.5).all()


def test_restricted_sends_everything_if_it_may() -> None:
    x = _rows()[:, :12]
    assert torch.allclose(draws(Induced(k=12, restricted=True), x, 1)[0], x)


def test_an_odd_k_is_rounded_down() -> None:
    """As in the experiments that have it: both parts send floor(k / 2)."""
    assert Induced(k=7).parts(40) == (3, 3) == Induced(k=6).parts(40)
    assert Induced(k=2).parts(40) == Induced(0.001).parts(40) == (1, 1)
