"""State to {path: tensor} and back; rows of a cohort."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import flatten, put_rows, restore, take_rows
from tests.looped import looped


@dataclass(frozen=True)
class Inner:
    rows: Tensor
    slots: tuple[Tensor, ...]


@dataclass(frozen=True)
class Outer:
    theta: Tensor
    inner: Inner


def _state() -> Outer:
    return Outer(torch.arange(3.0), Inner(torch.ones(2, 3), (torch.zeros(1), torch.tensor([4]))))


def test_paths() -> None:
    assert list(flatten(_state())) == ["theta", "inner.rows", "inner.slots.0", "inner.slots.1"]


def test_round_trip() -> None:
    state = _state()
    changed = {name: tensor + 1 for name, tensor in flatten(state).items()}
    restored = restore(state, changed)
    assert isinstance(restored, Outer)
    assert all(torch.equal(tensor, changed[name]) for name, tensor in flatten(restored).items())


def test_a_leaf_that_is_no_tensor_is_refused() -> None:
    with pytest.raises(TypeError, match="state at 'inner' is float"):
        flatten(Outer(torch.zeros(1), 3.0))  # type: ignore[arg-type]


@looped(
    "name, tensor, message",
    [
        ("theta", torch.zeros(4), r"state 'theta' is torch.float32 \(4,\), but this run needs torch.float32 \(3,\)"),
        ("theta", torch.zeros(3, dtype=torch.int64), "is torch.int64"),
        ("inner.rows", None, "state 'inner.rows' is missing"),
    ],
)
def test_what_does_not_fit_is_named(name, tensor, message) -> None:
    tensors = flatten(_state())
    del tensors[name]
    if tensor is not None:
        tensors[name] = tensor
    with pytest.raises(ValueError, match=message):
        restore(_state(), tensors)


def test_rows_of_a_cohort() -> None:
    rows = torch.arange(8.0).view(4, 2)
    some = Cohort.of([1, 3], torch.ones(2))
    assert torch.equal(take_rows(rows, some), rows[[1, 3]])
    new = put_rows(rows, some, torch.full((2, 2), -1.0))
    assert torch.equal(new[[0, 2]], rows[[0, 2]])
    assert (new[[1, 3]] == -1).all()
    assert rows[1, 0] == 2
    everyone = Cohort.of(range(4), torch.ones(4))  # type: ignore[arg-type]
    assert torch.equal(put_rows(rows, everyone, rows + 1), rows + 1)
    shared = torch.zeros(1, 2).expand(4, 2)  # rows that are one row are not overwritten
    for old, in_place in ((rows, True), (shared, False)):
        given = put_rows(old, replace(some, state_donated=True), new[some.ids])
        assert (given is old) == in_place
        assert (given[[1, 3]] == -1).all()
    assert (shared == 0).all()
