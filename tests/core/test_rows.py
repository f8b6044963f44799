"""Scans and scatters of rows: a GPU's forms compute what torch's plain ones do, and sort nothing."""

import pytest
import torch

from fedcomp.core.rows import _counted_as_one, add_distinct_, count_along_rows, scatter_distinct_
from tests.looped import looped


@looped("shape", [(1, 1), (1, 7), (3, 1), (10, 1000)])
def test_rows_that_are_scanned_as_one_are_those_scanned_apart(shape) -> None:
    random = torch.Generator().manual_seed(0)
    mask = torch.rand(shape, generator=random) < 0.3
    assert torch.equal(_counted_as_one(mask, torch.int64), mask.cumsum(1))
    large = torch.randint(1 << 28, 1 << 31, shape, generator=random)
    large[:, 1:] >>= 20  # a row's own sums fit, those of all rows do not
    assert torch.equal(_counted_as_one(large.to(torch.int32), torch.int32), large.cumsum(1).to(torch.int32))


def test_counts_of_rows_without_entries() -> None:
    assert count_along_rows(torch.zeros(3, 0, dtype=torch.bool)).shape == (3, 0)


@looped("wanted, warns", [(False, False), (True, False), (True, True)])
def test_scatters_leave_the_setting_as_it_was(wanted: bool, warns: bool) -> None:
    torch.use_deterministic_algorithms(wanted, warn_only=warns)
    try:
        out = scatter_distinct_(torch.zeros(1, 3), torch.tensor([[2, 0]]), torch.tensor([[5.0, 6.0]]))
        assert add_distinct_(out, torch.tensor([[2]]), torch.tensor([[1.0]])).tolist() == [[6.0, 0.0, 6.0]]
        with pytest.raises(RuntimeError):
            scatter_distinct_(out, torch.tensor([[3]]), torch.ones(1, 1))
        found = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        assert found == (wanted, wanted and warns)
    finally:
        torch.use_deterministic_algorithms(False)
