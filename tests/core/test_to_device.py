"""What goes to a GPU goes without waiting: large arrays through pinned memory."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from fedcomp.core.cohort import Cohort
from fedcomp.core.to_device import PAGEABLE_BYTES, to_device


def test_large_arrays_are_pinned_for_a_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[int] = []
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: pinned.append(tensor.nbytes) or tensor)
    sizes = PAGEABLE_BYTES, PAGEABLE_BYTES + 8
    for size in sizes:
        array = np.arange(size // 8)
        assert np.shares_memory(to_device(array, torch.device("cpu")).numpy(), array)
        assert pinned == []
    with FakeTensorMode(allow_non_fake_inputs=True):
        found = [to_device(np.arange(size // 8), torch.device("cuda")) for size in sizes]
    assert all(one.is_cuda for one in found)
    assert pinned == [PAGEABLE_BYTES + 8]


def test_a_large_cohort_is_copied_from_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[int] = []
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: pinned.append(tensor.nbytes) or tensor)
    cohort = Cohort.of(range(10_000), torch.ones(10_000))
    with FakeTensorMode(allow_non_fake_inputs=True):
        moved = cohort.to(torch.device("cuda"))
    assert moved.ids.is_cuda
    assert moved.weight.is_cuda
    assert pinned == [80_000]  # 40,000 bytes of weights go at once
