"""State to {path: tensor} and back; rows of a cohort; scans and scatters of rows compute what torch's plain ones do."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import flatten, put_rows, restore, take_rows
from fedcomp.core.rows import _counted_as_one, add_distinct_, count_along_rows, scatter_distinct_
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
