"""Compiled gradients of small perceptrons against the tensor code, their slow twin: the same bits, client by client."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedcomp.model.batched.backward import mlp as mlp_backward
from fedcomp.model.batched.backward.mlp import Perceptron
from fedcomp.model.batched.backward.mlp_compiled import CompiledMlp, products_are_chains
from fedcomp.model.contract import Gradient
from fedcomp.model.loss import cross_entropy, squared_error
from fedcomp.model.networks.mlp import mlp


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlp_backward, "COMPILE_AFTER", 0)


pytestmark = pytest.mark.skipif(not products_are_chains(), reason="the tensor code is used on this processor")

SIZES = {
    "digits": (64, (32,), 10),
    "one layer": (20, (), 10),
    "odd": (17, (33, 24), 11),
    "wide": (128, (128, 40), 10),
}


def _inputs(model: Perceptron, rows: int, batch: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows * batch)
    theta = 0.3 * torch.randn(rows, model.dim, generator=generator)
    x = torch.randn(rows, batch, width, generator=generator)
    return theta, theta[:, :0], x, torch.randint(0, 10, (rows, batch), generator=generator)


def _twin(model: Perceptron, *batch: Tensor) -> Gradient:
    small, model.small = model.small, None
    found = model.gradient(*batch)
    model.small = small
    return found


def _compiles(model: Perceptron, theta: Tensor, x: Tensor) -> bool:
    return model.small is not None and model.small.takes(theta, x.shape[1])


def _check(model: Perceptron, *batch: Tensor) -> None:
    assert _compiles(model, batch[0], batch[2])
    model._verified.add(("gradient", batch[2].shape[0], batch[2].shape[1]))
    found, expected = model.gradient(*batch), _twin(model, *batch)
    for one, other in ((found.grad, expected.grad), (found.loss, expected.loss)):
        assert torch.equal(one, other)


@pytest.mark.parametrize("batch", [8, 10, 16, 31, 33, 65, 128])
@pytest.mark.parametrize("rows", [1, 3, 20])
@pytest.mark.parametrize("name", SIZES)
def test_the_compiled_gradient_is_that_of_the_tensor_code(name: str, rows: int, batch: int) -> None:
    width, hidden, num_outputs = SIZES[name]
    model = Perceptron(mlp((width,), num_outputs, hidden=hidden), cross_entropy)
    _check(model, *_inputs(model, rows, batch, width))


@pytest.mark.parametrize("loss", [cross_entropy, squared_error])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("form", ["relu on logits", "no bias", "no relu"])
def test_so_it_is_for_every_loss_and_form(form: str, weighted: bool, loss: object) -> None:
    relu_on_logits, bias = form == "relu on logits", form != "no bias"
    modules = [nn.Linear(24, 16, bias=bias), nn.ReLU(), nn.Linear(16, 10, bias=bias)]
    modules = [*modules, nn.ReLU()] if relu_on_logits else modules
    model = Perceptron(nn.Sequential(*(modules[::2] if form == "no relu" else modules)), loss)  # type: ignore[arg-type]
    theta, stats, x, y = _inputs(model, 5, 12, 24)
    weight = (torch.arange(12) < torch.tensor([12, 12, 9, 1, 0])[:, None]).float() if weighted else None
    targets = y if loss is cross_entropy else torch.randn(5, 12, 10)
    _check(model, theta, stats, x, targets, weight)


def test_a_client_has_the_same_gradient_in_any_company() -> None:
    model = Perceptron(mlp((64,), 10), cross_entropy)
    whole = _inputs(model, 7, 10, 64)
    together = model.gradient(*whole)
    for row in range(7):
        alone = model.gradient(*(part[row : row + 1] for part in whole))
        assert torch.equal(alone.grad[0], together.grad[row])
        assert torch.equal(alone.loss[0], together.loss[row])


def test_what_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiles(width: int = 64, hidden: int = 32, batch: int = 10, dtype: torch.dtype = torch.float32) -> bool:
        model = Perceptron(mlp((width,), 10, hidden=(hidden,)), cross_entropy)
        theta, _, x, _ = _inputs(model, 2, batch, width)
        return _compiles(model, theta.to(dtype), x.to(dtype))

    assert compiles()
    assert not compiles(dtype=torch.float64)
    assert not compiles(batch=7)
    assert not compiles(batch=129)
    assert not compiles(width=129)
    assert not compiles(hidden=15)
    assert Perceptron(mlp((64,), 10), cross_entropy, precision="bf16").small is None
    model = Perceptron(mlp((64,), 10), cross_entropy)
    assert not _compiles(model, torch.empty(2, 2410, device="meta"), torch.empty(2, 10, 64))
    theta, stats, x, y = _inputs(model, 2, 10, 64)
    expected = _twin(model, theta, stats, x.double(), y)
    assert torch.equal(model.gradient(theta, stats, x.double(), y).grad, expected.grad)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert not compiles()


def test_it_is_compiled_after_some_gradients_if_the_bits_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlp_backward, "COMPILE_AFTER", 3)
    model, compiled = Perceptron(mlp((64,), 10), cross_entropy), CompiledMlp.gradient
    calls: list[int] = []

    def counted(self: CompiledMlp, *batch: Tensor) -> tuple[Tensor, Tensor]:
        calls.append(len(calls))
        grad, loss = compiled(self, *batch)
        grad[0, 0] += error
        return grad, loss

    monkeypatch.setattr(CompiledMlp, "gradient", counted)
    given, error = _inputs(model, 2, 10, 64), 0.0
    expected = _twin(model, *given).grad
    for done in range(6):
        assert torch.equal(model.gradient(*given).grad, expected)
        assert len(calls) == max(0, done - 1)
    model, error = Perceptron(mlp((64,), 10), cross_entropy), 1e-3
    for _ in range(6):
        assert torch.equal(model.gradient(*given).grad, expected)
    assert model.small is None


def test_each_size_of_a_batch_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of another size may be rounded otherwise."""
    model, compared = Perceptron(mlp((64,), 10), cross_entropy), []
    tensor_gradient = Perceptron._tensor_gradient

    def counted(self: Perceptron, *batch: Tensor) -> Gradient:
        compared.append(tuple(batch[2].shape[:2]))
        return tensor_gradient(self, *batch)

    monkeypatch.setattr(Perceptron, "_tensor_gradient", counted)
    for rows, batch in ((2, 10), (2, 10), (3, 10), (2, 12), (3, 10)):
        model.gradient(*_inputs(model, rows, batch, 64))
    assert compared == [(2, 10), (3, 10), (2, 12)]
