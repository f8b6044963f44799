"""Four-bit floats: every code, midpoints, scales."""

import torch
from torch import Tensor

from fedcomp.compressor.quantisers.fp4 import FP4
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge


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
