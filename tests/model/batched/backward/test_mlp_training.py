"""Small perceptrons: plain SGD in compiled steps, beside the loop of gradients, its slow twin: the same bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedcomp.client.contract import LocalResult
from fedcomp.client.sgd import Sgd
from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.model.batched.backward import mlp as mlp_backward
from fedcomp.model.batched.backward.mlp import Perceptron
from fedcomp.model.batched.backward.mlp_compiled import CompiledMlp, products_are_chains
from fedcomp.model.build import build
from fedcomp.random.keys import Key
from fedcomp.simulation.chunks.client_data import ClientChunk, ClientShards
from fedcomp.simulation.cuda_graphs.fused_loop import FusedLoops

pytestmark = pytest.mark.skipif(not products_are_chains(), reason="the tensor code is used on this processor")

ALIKE, RAGGED = (20, 20, 20), (33, 27, 11, 8)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlp_backward, "COMPILE_AFTER", 0)


class Refusing:
    """A runner that no loop may reach."""

    def run(self, *_: object) -> None:
        raise AssertionError("these steps were not compiled")


def _network(form: str) -> nn.Module:
    layers = [nn.Linear(17, 24, bias=form != "no bias"), nn.ReLU(), nn.Linear(24, 10, bias=form != "no bias")]
    return nn.Sequential(*layers, *([nn.ReLU()] if form == "relu on outputs" else []))


def _chunk(
    sizes: tuple[int, ...], form: str = "plain", dtype: torch.dtype = torch.uint8, precision: str = "fp32"
) -> ClientChunk:
    """Clients with 17 features, each normalised by itself; targets are numbers if `form` is regression."""
    random, num = torch.Generator().manual_seed(0), sum(sizes)
    x = (3 * torch.rand(num, 17, generator=random)).to(dtype)
    task: Any = "regression" if form == "regression" else "classification"
    y = (
        torch.randn(num, 10, generator=random)
        if task == "regression"
        else torch.randint(0, 10, (num,), generator=random)
    )
    mean, std = (torch.rand(17, generator=random) + 1 for _ in range(2))
    data = Dataset("features", Samples(x, y), Samples(x, y), task, 10, mean, std)
    model = build(lambda: _network(form), Key(("steps",)), (17,), 10, task, precision=precision)
    assert isinstance(model, Perceptron)
    shards = ClientShards.of(list(torch.arange(num).split(list(sizes))), torch.device("cpu"))
    return ClientChunk(torch.arange(len(sizes)), np.array(sizes), Key(("round",)), data, shards, model)


def _start(data: ClientChunk) -> tuple[Tensor, Tensor]:
    theta, stats = data.model.init(Key())
    factors = 1 - 0.1 * data.ids[:, None]
    return theta * factors, stats.expand(len(factors), -1)


def _trained(data: ClientChunk, solver: Sgd, runner: Any) -> tuple[LocalResult, int]:
    """What the clients end with, each from parameters of its own, and the samples that were counted."""
    data = replace(data, loop_runner=runner, computed=[])
    found = solver.run(data, *_start(data), (0, 1))
    return found, sum(int(one) for one in data.computed)


def _same(one: LocalResult, other: LocalResult) -> bool:
    return torch.equal(one.theta, other.theta) and torch.equal(one.loss, other.loss)


@pytest.mark.parametrize(
    ("sizes", "solver", "form", "dtype"),
    [
        (ALIKE, Sgd(lr=0.1, batch_size=10), "plain", torch.uint8),
        (ALIKE, Sgd(lr=0.1, batch_size=8, steps=7, replacement=True), "plain", torch.float32),
        (RAGGED, Sgd(lr=0.1, batch_size=8, epochs=2, weight_decay=0.1), "plain", torch.float32),
        (RAGGED, Sgd(lr=0.1, batch_size=64), "regression", torch.uint8),
        (RAGGED, Sgd(lr=0.1, batch_size=11), "relu on outputs", torch.uint8),
        (ALIKE, Sgd(lr=0.1, batch_size=16, weight_decay=0.3), "no bias", torch.uint8),
    ],
    ids=["alike", "replacement", "ragged", "regression", "relu", "no-bias"],
)
def test_compiled_steps_are_the_loop_of_gradients(sizes, solver, form, dtype, monkeypatch) -> None:
    data = _chunk(sizes, form, dtype)
    slow, counted = _trained(data, solver, None)
    assert not torch.equal(slow.theta, _start(data)[0])
    fast, fused = _trained(data, solver, FusedLoops(Refusing()))  # in both ways, which are compared
    assert _same(slow, fast)
    assert counted == fused
    assert data.model.small is not None
    assert any(what == "steps" for what, *_ in data.model._verified)

    small, sizes_of_tensor_steps = data.model.small, []
    tensor_gradient = Perceptron._tensor_gradient

    def noted(self: Perceptron, theta: Tensor, stats: Tensor, x: Tensor, *rest: Any) -> Any:
        sizes_of_tensor_steps.append(x.shape[1])
        return tensor_gradient(self, theta, stats, x, *rest)

    monkeypatch.setattr(Perceptron, "_tensor_gradient", noted)
    again, _ = _trained(data, solver, FusedLoops(Refusing()))  # compiled alone
    assert _same(slow, again)
    assert not any(small.takes(fast.theta, size) for size in sizes_of_tensor_steps)


@pytest.mark.parametrize("alone", [0, 1, 2])
def test_a_client_has_the_same_bits_in_any_company(alone: int) -> None:
    data, solver = _chunk(ALIKE), Sgd(lr=0.1, batch_size=10)
    together, _ = _trained(data, solver, FusedLoops(Refusing()))
    one, rows = slice(alone, alone + 1), slice(alone, alone + 1)
    found, _ = _trained(replace(data, ids=data.ids[one], sizes=data.sizes[one]), solver, FusedLoops(Refusing()))
    assert torch.equal(found.theta, together.theta[rows])
    assert torch.equal(found.loss, together.loss[rows])


def test_steps_with_other_bits_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found where both ways are compared, and the run goes on with the tensor code."""
    data, solver, descend = _chunk(ALIKE), Sgd(lr=0.1, batch_size=10), CompiledMlp.descend
    slow, _ = _trained(data, solver, None)

    def wrong(self: CompiledMlp, sgd: Any, theta: Tensor, *rest: Any) -> None:
        descend(self, sgd, theta, *rest)
        theta[0, 0] += 1e-3

    monkeypatch.setattr(CompiledMlp, "descend", wrong)
    fast, _ = _trained(data, solver, FusedLoops(Refusing()))
    assert _same(slow, fast)
    assert data.model.small is None
    with pytest.raises(AssertionError, match="not compiled"):
        _trained(data, solver, FusedLoops(Refusing()))


def test_which_loops_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    data, solver = _chunk(ALIKE), Sgd(lr=0.1, batch_size=10)
    doubles = Samples(data.dataset.train.x.double(), data.dataset.train.y)
    stepwise = [
        (data, Sgd(lr=0.1, batch_size=7)),
        (data, Sgd(lr=0.1, momentum=0.9)),
        (replace(data, dataset=replace(data.dataset, train=doubles)), solver),
        (_chunk(ALIKE, precision="bf16"), solver),
    ]
    for chunk, other in stepwise:
        with pytest.raises(AssertionError, match="not compiled"):
            _trained(chunk, other, FusedLoops(Refusing()))

    monkeypatch.setattr(mlp_backward, "COMPILE_AFTER", 5)  # counted in gradients, of which a round here has two
    young, reached = _chunk(ALIKE), []

    class Other:
        def run(self, *_: object) -> None:
            reached.append("other")

    for _ in range(5):
        _trained(young, solver, FusedLoops(Other()))
    assert reached == ["other"] * 2
