"""State to {path: tensor} and back; rows of a cohort, scans and scatters of them, parts of a row, A and B in it."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from fedcomp.core.cohort import Cohort
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.core.parameter_layout import (
    BIAS,
    NORMALISATION,
    WEIGHT,
    ParameterSubset,
    ParameterTensor,
    is_normalisation,
)
from fedcomp.core.pytree import flatten, put_rows, restore, take_rows
from fedcomp.core.rows import _counted_as_one, add_distinct_, count_along_rows, scatter_distinct_
from fedcomp.model.build import build
from fedcomp.model.contract import Model
from fedcomp.model.networks.cnn_bn import cnn4_bn
from fedcomp.random.keys import Key
from tests.looped import looped
from tests.lora_networks import lora_mlp, lora_mlp_b, lora_mlp_head


@dataclass(frozen=True)
class Inner:
    rows: Tensor
    slots: tuple[Tensor, ...]


@dataclass(frozen=True)
class Outer:
    theta: Tensor
    inner: Inner
    named: dict[str, Tensor]


def _state() -> Outer:
    inner = Inner(torch.ones(2, 3), (torch.zeros(1), torch.tensor([4])))
    return Outer(torch.arange(3.0), inner, {"a": torch.zeros(2)})


def test_paths() -> None:
    assert list(flatten(_state())) == ["theta", "inner.rows", "inner.slots.0", "inner.slots.1", "named.a"]


def test_round_trip() -> None:
    state = _state()
    changed = {name: tensor + 1 for name, tensor in flatten(state).items()}
    restored = restore(state, changed)
    assert isinstance(restored, Outer)
    assert all(torch.equal(tensor, changed[name]) for name, tensor in flatten(restored).items())


def test_a_leaf_that_is_no_tensor_is_refused() -> None:
    with pytest.raises(ValueError, match="state.inner is a float, but a state holds tensors alone"):
        flatten(Outer(torch.zeros(1), 3.0, {}))  # type: ignore[arg-type]


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
        assert (given.data_ptr() == old.data_ptr()) == in_place
        assert given is not old
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


TENSORS = (
    ParameterTensor(6, WEIGHT, 3),
    ParameterTensor(2, BIAS, 3),
    ParameterTensor(2, NORMALISATION),
    ParameterTensor(2, NORMALISATION),
    ParameterTensor(4, WEIGHT, 2),
)


def test_take_and_put_are_inverse() -> None:
    part = ParameterSubset.of(TENSORS, lambda tensor: not is_normalisation(tensor))
    rows = torch.arange(32.0).view(2, 16)
    assert part.runs == ((0, 8), (12, 16))
    assert part.layers == (6, 2, 4)
    assert part.rest.runs == ((8, 12),)
    assert part.take(rows)[1].tolist() == [16, 17, 18, 19, 20, 21, 22, 23, 28, 29, 30, 31]
    before = rows.clone()
    swapped = part.put(rows, -part.take(rows))
    assert torch.equal(rows, before)
    assert torch.equal(part.put(swapped, part.take(rows)), rows)
    assert torch.equal(part.rest.take(swapped), part.rest.take(rows))


@looped("everything", [True, False])
def test_all_and_nothing(everything: bool) -> None:
    part, row = ParameterSubset.of(TENSORS, lambda tensor: everything), torch.arange(16.0)
    whole, empty = (part, part.rest) if everything else (part.rest, part)
    assert whole.take(row) is row
    assert (whole.size, empty.size) == (16, 0)
    assert empty.take(row).shape == (0,)
    assert torch.equal(empty.put(row, torch.empty(0)), row)
    assert torch.equal(whole.put(row, -row), -row)


def test_what_a_networks_tensors_are() -> None:
    model = build(cnn4_bn, Key(("m",)), (1, 28, 28), 10, "classification")
    kinds = [tensor.kind for tensor in model.tensors]
    assert kinds == [WEIGHT, NORMALISATION, NORMALISATION] * 4 + [WEIGHT]
    assert [tensor.fan_in for tensor in model.tensors if tensor.kind == WEIGHT] == [9, 288, 576, 1152, 256]
    assert tuple(tensor.size for tensor in model.tensors) == model.layers
    assert sum(tensor.size for tensor in model.tensors if not is_normalisation(tensor)) == 389_920


def test_a_bias_has_its_layers_fan_in() -> None:
    model = build(lambda: nn.Linear(7, 3), Key(("m",)), (7,), 3, "classification")
    assert model.tensors == (ParameterTensor(21, WEIGHT, 7), ParameterTensor(3, BIAS, 7))


def test_factors_are_the_modules_own() -> None:
    """Also for a square A (r = i = 5) and another order than A before B."""
    model = Model(lora_mlp(rank=5))
    layout = LoraLayout.of(model.tensors)
    rows = torch.randn(3, model.dim)
    named = dict(zip([n for n, _ in model.module.named_parameters() if "lora" in n], model.parameters(rows)))
    for layer, (a, b) in zip(("0", "2"), layout.factors(rows), strict=True):
        assert torch.equal(a, named[f"{layer}.lora_A"])
        assert torch.equal(b, named[f"{layer}.lora_B"])
    turned = LoraLayout.of(model.tensors[::-1])
    assert turned.matrices[0].b == turned.matrices[0].a - turned.matrices[0].b_size
    shapes = [(one.rank, one.inputs, one.outputs, one.scale) for one in layout.matrices]
    assert shapes == [(5, 5, 6, 0.8), (5, 6, 3, 0.8)]


def test_put_takes_what_factors_gives() -> None:
    layout = LoraLayout.of(Model(lora_mlp_head()).tensors)
    rows, other = torch.randn(2, 2, layout.dim)
    changed = layout.put(rows, layout.factors(other))
    assert torch.equal(layout.rest.put(other, layout.rest.take(rows)), changed)
    assert not torch.equal(changed, rows)


def test_subsets_share_out_the_columns() -> None:
    layout = LoraLayout.of(Model(lora_mlp_head()).tensors)
    assert (layout.a.size, layout.b.size, layout.rest.size) == (10, 12, 21)
    row = torch.arange(layout.dim)
    assert torch.cat([part.take(row) for part in (layout.a, layout.b, layout.rest)]).sort().values.equal(row)


def test_a_frozen_a_is_not_in_the_row() -> None:
    layout = LoraLayout.of(Model(lora_mlp_b()).tensors)
    assert (layout.dim, layout.a.size, layout.b.size) == (18, 0, 18)
    with pytest.raises(ValueError, match="take model.trains=both"):
        layout.factors(torch.zeros(1, 18))


def test_a_model_without_adapters_is_refused() -> None:
    with pytest.raises(ValueError, match="has no low-rank adapters"):
        LoraLayout.of([ParameterTensor(3)])
