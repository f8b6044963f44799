"""Rows that a round changes, noted while it lasts and written when it is over: in place, if nothing else holds them.

A method is given a state and returns a new one; the old one stays as it is. Where a few of many clients take part, a
new tensor for all of them would double the memory. A caller that gives its state up lets `put_rows` note the change,
and `written` then changes the old tensor itself. A method that reads such rows before the round is over gets a whole
new tensor, with the same values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class RowUpdate(Tensor):
    """[N, ...] rows in which those at some places are others. Any operation on it sees a whole tensor.

    Args:
        rows: [N, ...]. places: [M] int64. changed: [M, ...].
    """

    @staticmethod
    def __new__(cls, rows: Tensor, places: Tensor, changed: Tensor) -> RowUpdate:
        return Tensor._make_wrapper_subclass(cls, rows.shape, dtype=rows.dtype, device=rows.device)

    def __init__(self, rows: Tensor, places: Tensor, changed: Tensor) -> None:
        self.rows = rows
        self.places = places
        self.changed = changed
        self._whole: Tensor | None = None

    def whole(self) -> Tensor:
        """[N, ...] a new tensor; `rows` stay as they are."""
        if self._whole is None:
            self._whole = self.rows.index_copy(0, self.places, self.changed)
        return self._whole

    def in_place(self) -> Tensor:
        """[N, ...] `rows`, changed; where a whole tensor was made already, that one."""
        if self._whole is not None:
            return self._whole
        return self.rows.index_copy_(0, self.places, self.changed)

    def numpy(self, *, force: bool = False) -> Any:
        """As of the whole tensor."""
        return self.whole().numpy(force=force)

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # results are plain tensors

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return function(*_plain(args), **_plain(kwargs or {}))


def written(old: dict[str, Tensor], new: dict[str, Tensor], others: Iterable[Tensor] = ()) -> dict[str, Tensor]:
    """The tensors of a round's `new` state, no update among them.

    Args:
        old: tensors of the previous state, which are not read again. others: what else the round has returned.
    """
    before = Counter(map(_place, old.values()))
    after = Counter(map(_place, [*new.values(), *others]))

    def plain(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, RowUpdate):
            return tensor
        place = _place(tensor)
        alone = before[place] == 1 and after[place] == 1 and tensor.rows.is_contiguous()
        return tensor.in_place() if alone else tensor.whole()

    return {name: plain(tensor) for name, tensor in new.items()}


def _place(tensor: Tensor) -> int:
    """Where a tensor's memory begins; of an update, that of the rows that it changes."""
    return (tensor.rows if isinstance(tensor, RowUpdate) else tensor).untyped_storage().data_ptr()


def _plain(value: Any) -> Any:
    if isinstance(value, RowUpdate):
        return value.whole()
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    return {name: _plain(one) for name, one in value.items()} if isinstance(value, dict) else value
