"""Scans and scatters along the rows of a matrix, in forms that are fast on a GPU too.

Shape legend: M rows, D entries of a row, n entries to be written.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def count_along_rows(x: Tensor, dtype: torch.dtype = torch.int64) -> Tensor:
    """[M, D] integers, `x.cumsum(1, dtype)` of integers or booleans x [M, D].

    CUDA scans the last dimension of a matrix with one thread block for each row, too few for ten long rows. There all
    rows are scanned as one, and what lies before a row is subtracted. Integers do not round, and where the scan
    overflows the subtraction undoes it, so the results are the same.
    """
    return _counted_as_one(x, dtype) if x.device.type == "cuda" and x.shape[1] else x.cumsum(1, dtype=dtype)


def _counted_as_one(x: Tensor, dtype: torch.dtype) -> Tensor:
    total = x.flatten().cumsum(0, dtype=dtype).view(x.shape)
    return total - (total[:, :1] - x[:, :1].to(dtype))


def scatter_distinct_(out: Tensor, indices: Tensor, values: Tensor) -> Tensor:
    """`out.scatter_(1, indices, values)` where the indices [M, n] of a row are distinct, but for those never read.

    Where torch is to be deterministic, it sorts the indices of a scatter on CUDA, and so decides which of equal ones
    is written last. Distinct ones give the same result in any order.
    """
    with _any_order():
        return out.scatter_(1, indices, values)


def add_distinct_(out: Tensor, indices: Tensor, values: Tensor) -> Tensor:
    """`out.scatter_add_(1, indices, values)` where the indices [M, n] of a row are distinct, or the sums are exact."""
    with _any_order():
        return out.scatter_add_(1, indices, values)


@contextmanager
def _any_order() -> Iterator[None]:
    """Let torch choose kernels that write in any order. A setting of the process: a GPU is driven by one thread."""
    wanted, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    if not wanted:
        yield
        return
    torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(True, warn_only=warns)
