"""Trees of tensors: frozen state to and from {path: tensor} (for checkpoints), and rows of a cohort's clients."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from torch import Tensor

from fedcomp.core.cohort import Cohort

State = TypeVar("State")


def flatten(state: Any, path: str = "") -> dict[str, Tensor]:
    """Name every tensor of a state: nested dataclasses, tuples and dicts become dotted paths.

    Raises ValueError: a leaf is not a tensor, so it could not be restored bit for bit.
    """
    if isinstance(state, Tensor):
        return {path: state}
    tensors: dict[str, Tensor] = {}
    for name, value in _children(state, path):
        tensors |= flatten(value, f"{path}.{name}" if path else name)
    return tensors


def restore(like: State, tensors: dict[str, Tensor]) -> State:
    """A state with the structure of `like` and the leaves `tensors`; the inverse of `flatten`.

    Raises ValueError: a tensor is missing, or has another shape or dtype than in `like`.
    """
    restored: State = unflatten(like, [_checked(path, old, tensors) for path, old in flatten(like).items()])
    return restored


def map_tensors(function: Callable[..., Tensor], *trees: Any) -> Any:
    """Apply `function` leaf by leaf to trees of the same structure (dataclasses, tuples, dicts), as `jax.tree.map`."""
    first = trees[0]
    if isinstance(first, Tensor):
        return function(*trees)
    if isinstance(first, tuple):
        return tuple(map_tensors(function, *children) for children in zip(*trees, strict=True))
    if isinstance(first, dict):
        return {name: map_tensors(function, *[tree[name] for tree in trees]) for name in first}
    names = [field.name for field in dataclasses.fields(first)]
    mapped = {name: map_tensors(function, *[getattr(tree, name) for tree in trees]) for name in names}
    return dataclasses.replace(first, **mapped)


def unflatten(like: Any, tensors: Iterable[Tensor]) -> Any:
    """A tree with the structure of `like` and the leaves `tensors`, in the order of `flatten(like)`; any shapes."""
    leaves = iter(tensors)
    return map_tensors(lambda _: next(leaves), like)


def _children(state: Any, path: str) -> list[tuple[str, Any]]:
    if dataclasses.is_dataclass(state) and not isinstance(state, type):
        return [(field.name, getattr(state, field.name)) for field in dataclasses.fields(state)]
    if isinstance(state, tuple):
        return [(str(index), value) for index, value in enumerate(state)]
    if isinstance(state, dict):
        return list(state.items())
    raise ValueError(
        f"state{'.' if path else ''}{path} is a {type(state).__name__}, but a state holds tensors alone, in frozen "
        "dataclasses, tuples and dicts: make a number a tensor"
    )


def _checked(path: str, old: Tensor, tensors: dict[str, Tensor]) -> Tensor:
    if path not in tensors:
        raise ValueError(f"state '{path}' is missing")
    new = tensors[path]
    if new.shape != old.shape or new.dtype != old.dtype:
        raise ValueError(
            f"state '{path}' is {new.dtype} {tuple(new.shape)}, but this run needs {old.dtype} {tuple(old.shape)}"
        )
    return new.to(old.device)


def shares_memory(state: Any) -> bool:
    """Whether two tensors of a state are one, or parts of one."""
    tensors = [tensor for tensor in flatten(state).values() if tensor.numel()]
    return len({tensor.untyped_storage().data_ptr() for tensor in tensors}) < len(tensors)


def take_rows(rows: Tensor, cohort: Cohort) -> Tensor:
    """[M, ...]: the rows of the cohort's clients, out of one row per client [N, ...]."""
    if not rows.shape[1:].numel():  # rows without entries: this sender keeps no memory
        return rows[: cohort.size]
    return rows if cohort.is_all_of(rows.shape[0]) else rows.index_select(0, cohort.ids)


def put_rows(rows: Tensor, cohort: Cohort, new: Tensor) -> Tensor:
    """[N, ...]: `rows` with the cohort's rows replaced by `new` [M, ...]; those of idle clients unchanged.

    With `cohort.state_donated` it is a view of `rows`, overwritten: a second tensor [N, ...] would double the memory.
    What a round needs of the old rows it takes before. That it is another object tells who kept the old one.
    """
    if not rows.shape[1:].numel():
        return rows
    if cohort.is_all_of(rows.shape[0]):
        return new
    if cohort.state_donated and rows.is_contiguous():
        return rows.index_copy_(0, cohort.ids, new).view_as(rows)
    return rows.index_copy(0, cohort.ids, new)
