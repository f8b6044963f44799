"""Normalisation: (raw - mean) / std of each channel or feature, in float32."""

import torch

from fedcomp.dataset.contract import Dataset, Samples
from tests.looped import looped


def _dataset(x: torch.Tensor, mean: list[float], std: list[float]) -> Dataset:
    samples = Samples(x, torch.zeros(len(x), dtype=torch.int64))
    return Dataset("mine", samples, samples, "classification", 2, torch.tensor(mean), torch.tensor(std))


@looped("dtype", [torch.uint8, torch.float32])
@looped("mean, std", [([10.0, 100.0, 30.0], [2.0, 50.0, 7.0]), ([90.0], [40.0])])
@looped("shape", [(6, 4, 5, 3), (2, 3, 4, 5, 3), (6, 3)])
def test_each_channel_or_feature_by_itself(dtype, mean, std, shape) -> None:
    """Images come out as [..., C, H, W], channels last in memory, from any leading axes."""
    raw = (torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 255).to(dtype)
    found = _dataset(raw.reshape(6, *shape[-3:]) if len(shape) > 2 else raw, mean, std).normalise(raw)
    wanted = (raw.double() - torch.tensor(mean)) / torch.tensor(std)
    wanted = wanted.movedim(-1, -3) if len(shape) > 2 else wanted
    assert found.dtype == torch.float32
    assert found.stride() == wanted.stride()
    torch.testing.assert_close(found, wanted.float())
