"""The k largest entries, and which of equal ones."""

from __future__ import annotations

import pytest
import torch

from fedcomp.compressor.sparsifiers.stable_topk import stable_topk


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("levels", [1, 2, 7, 100, 10_000_000])
def test_of_equal_entries_the_first_are_taken(levels: int, dtype: torch.dtype) -> None:
    size = torch.randint(0, levels, (5, 3001), generator=torch.Generator().manual_seed(levels)).to(dtype)
    order = size.sort(dim=1, descending=True, stable=True).indices
    for k in (1, 2, 30, 1000, 3000, 3001):
        assert torch.equal(stable_topk(size, k), order[:, :k].sort(dim=1).values), k


def test_every_row_has_its_own_threshold() -> None:
    size = torch.tensor([[3.0, 3, 3, 1], [0, 0, 0, 5], [4, 3, 2, 1]])
    assert stable_topk(size, 2).tolist() == [[0, 1], [0, 3], [0, 1]]
    assert size.tolist() == [[3.0, 3, 3, 1], [0, 0, 0, 5], [4, 3, 2, 1]]
    assert stable_topk(size[:, :1], 0).shape == (3, 0)
