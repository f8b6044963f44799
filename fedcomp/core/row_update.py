"""Updates of a few rows that are deferred to the end of a round, and then made in place if nothing else holds the rows.

An algorithm gets a state and returns a new one; the old one is not modified. Where a cohort is a few of many clients,
a new tensor [N, ...] would double the memory. If the caller donates its state, `put_rows` returns a `RowUpdate`, and
`apply_row_updates` overwrites the old tensor after the round. An algorithm that reads a `RowUpdate` during the round
gets a new tensor with the same values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class RowUpdate(Tensor):
    """[N, ...] the tensor `rows` with the rows `ids` replaced by `new_rows`. Any operation on it sees a dense tensor.

    Args:
        rows: [N, ...]. ids: [M] int64. new_rows: [M, ...].
    """

    @staticmethod
    def __new__(cls, rows: Tensor, ids: Tensor, new_rows: Tensor) -> RowUpdate:
        return Tensor._make_wrapper_subclass(cls, rows.shape, dtype=rows.dtype, device=rows.device)

    def __init__(self, rows: Tensor, ids: Tensor, new_rows: Tensor) -> None:
        self.rows = rows
        self.ids = ids
        self.new_rows = new_rows
        self._copy: Tensor | None = None

    def materialize(self) -> Tensor:
        """[N, ...] a new tensor; `rows` is not modified."""
        if self._copy is None:
            self._copy = self.rows.index_copy(0, self.ids, self.new_rows)
        return self._copy

    def materialize_(self) -> Tensor:
        """[N, ...] `rows`, overwritten in place; or the new tensor, if `materialize` has already made one."""
        if self._copy is not None:
            return self._copy
        return self.rows.index_copy_(0, self.ids, self.new_rows)

    def numpy(self, *, force: bool = False) -> Any:
        """As `Tensor.numpy`, of the updated rows."""
        return self.materialize().numpy(force=force)

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # results are plain tensors

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return function(*_dense(args), **_dense(kwargs or {}))


def apply_row_updates(
    old: dict[str, Tensor], new: dict[str, Tensor], returned: Iterable[Tensor] = ()
) -> dict[str, Tensor]:
    """The tensors of a round's `new` state, with every `RowUpdate` applied.

    Args:
        old: tensors of the previous state, which the caller has donated.
        returned: other tensors that the round returns.
    """
    old_counts = Counter(map(_data_ptr, old.values()))
    new_counts = Counter(map(_data_ptr, [*new.values(), *returned]))

    def applied(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, RowUpdate):
            return tensor
        pointer = _data_ptr(tensor)
        unshared = old_counts[pointer] == 1 and new_counts[pointer] == 1 and tensor.rows.is_contiguous()
        return tensor.materialize_() if unshared else tensor.materialize()

    return {name: applied(tensor) for name, tensor in new.items()}


def _data_ptr(tensor: Tensor) -> int:
    """Where a tensor's storage begins; for a `RowUpdate`, the storage of its `rows`."""
    return (tensor.rows if isinstance(tensor, RowUpdate) else tensor).untyped_storage().data_ptr()


def _dense(value: Any) -> Any:
    if isinstance(value, RowUpdate):
        return value.materialize()
    if isinstance(value, (list, tuple)):
        return type(value)(map(_dense, value))
    return {name: _dense(one) for name, one in value.items()} if isinstance(value, dict) else value
