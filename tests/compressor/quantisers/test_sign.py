"""Scaled sign: its error in closed form, sign(0), scales by tensor."""

import torch

from fedcomp.compressor.quantisers.sign import Sign
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge


def _round_trip(codec: Sign, x: torch.Tensor, layers: tuple[int, ...]) -> torch.Tensor:
    known = SharedKnowledge(Key(), torch.arange(x.shape[0]), layers)
    return codec.decode(codec.encode(x, known, Key()), known)


def test_error_in_closed_form() -> None:
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
