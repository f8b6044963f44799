"""Products in bfloat16: near the float32 gradient, on float32 rows, with float32 statistics and losses; refusals."""

from functools import partial

import pytest
import torch
from torch import nn

from fedcomp.model.batched.backward.mlp import Perceptron
from fedcomp.model.batched.functional import Functional
from fedcomp.model.batched.stacked import Stacked
from fedcomp.model.build import build
from fedcomp.model.contract import Batch
from fedcomp.model.flat import draw
from fedcomp.model.loss import loss_of
from fedcomp.model.networks.cnn import lenet5
from fedcomp.model.networks.cnn_bn import cnn4_bn
from fedcomp.model.networks.mlp import mlp
from fedcomp.model.precision import product_type, set_tf32
from fedcomp.model.tasks.principal_direction import PrincipalDirection
from fedcomp.random.keys import Key
from tests.looped import looped
from tests.model.plain_modules import batch, rows

KEY = Key(("precision",))
LOSS = loss_of("classification")
CASES = {
    "perceptron": (Perceptron, lambda: mlp((20,), 10), (20,)),
    "no biases": (Perceptron, lambda: mlp((20,), 10, bias=False), (20,)),
    "relu on logits": (Perceptron, lambda: mlp((20,), 10, hidden=(9,), relu_on_logits=True), (20,)),
    "convolutions": (Stacked, lambda: lenet5((1, 28, 28), 10), (1, 28, 28)),
    "batch norm": (Stacked, lambda: cnn4_bn((3, 16, 16), 10, std=0.1), (3, 16, 16)),
    "fallback": (partial(Functional, input_shape=(1, 28, 28)), lambda: lenet5((1, 28, 28), 10), (1, 28, 28)),
    "fallback over rows": (partial(Functional, input_shape=(20,)), lambda: mlp((20,), 10), (20,)),
}
WEIGHTS = {"all real": None, "ragged": ((1,) * 8, (1,) * 3 + (0,) * 5)}


@looped("weights", WEIGHTS)
@looped("name", CASES)
def test_gradients_are_near_those_of_float32(name, weights) -> None:
    kind, make, shape = CASES[name]
    module = draw(make, KEY)
    generator = torch.Generator().manual_seed(1)
    exact, lower = kind(module, LOSS), kind(module, LOSS, precision="bf16")
    theta, stats = (part.float() for part in rows(exact, 2, generator))
    x, y = batch(2, 8, shape, 10, "classification", generator)
    weight = None if WEIGHTS[weights] is None else torch.tensor(WEIGHTS[weights], dtype=torch.float32)
    expected = exact.gradient(theta, Batch(x.float(), y, weight, stats))
    got = lower.gradient(theta, Batch(x.float(), y, weight, stats))
    assert got.grad.dtype == got.loss.dtype == got.stats.dtype == torch.float32
    error = (got.grad - expected.grad).norm(dim=1) / expected.grad.norm(dim=1)
    assert (error < 0.25).all(), error
    assert (error > 1e-4).all(), "nothing was computed in bfloat16"
    assert torch.allclose(got.loss, expected.loss, rtol=0.02)
    assert torch.allclose(got.stats, expected.stats, rtol=0.02, atol=0.02)


@looped("name", ["convolutions", "batch norm"])
def test_stacked_layers_round_as_autocast_does(name) -> None:
    """Torch's own mixed precision of the plain module is as far from float32, in the same direction."""
    _, make, shape = CASES[name]
    module = draw(make, KEY)
    generator = torch.Generator().manual_seed(2)
    ours, torchs = Stacked(module, LOSS, precision="bf16"), Functional(module, LOSS, shape, precision="bf16")
    theta, stats = (part.float() for part in rows(ours, 1, generator))
    x, y = batch(1, 8, shape, 10, "classification", generator)
    given, models = Batch(x.float(), y, None, stats), (Stacked(module, LOSS), ours, torchs)
    exact, one, other = (model.gradient(theta, given).grad for model in models)
    assert (one - other).norm() < 0.5 * (other - exact).norm()


def test_statistics_are_sums_of_float32() -> None:
    """The running mean of values near 1 moves by less than bfloat16 can hold (2^-8), samples masked or not."""
    module = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 10))
    model = Stacked(module, LOSS, precision="bf16")
    theta, stats = torch.ones(1, model.dim), torch.ones(1, model.num_stats)
    x = 1 + 0.001 * torch.arange(16.0).view(1, 8, 2)
    for weight in (None, torch.ones(1, 8)):
        after = model.gradient(theta, Batch(x, torch.zeros(1, 8, dtype=torch.int64), weight, stats)).stats
        expected = 0.9 + 0.1 * x[0].mean(0)
        assert torch.allclose(after[0, :2], expected, atol=1e-6)
        assert (after[0, :2] != 1).all()


def test_models_are_tested_in_float32() -> None:
    module = mlp((20,), 10)
    theta, x = torch.linspace(-1, 1, Perceptron(module, LOSS).dim), torch.ones(5, 20)
    for kind in (Perceptron, Stacked, partial(Functional, input_shape=(20,))):
        one, other = kind(module, LOSS, precision="bf16"), kind(module, LOSS)
        assert torch.equal(one.outputs(theta, torch.empty(0), x), other.outputs(theta, torch.empty(0), x))


def test_build_passes_it_on() -> None:
    for make, shape in ((mlp, (20,)), (lenet5, (1, 28, 28))):
        assert build(make, KEY, shape, 10, "classification", precision="bf16").products is torch.bfloat16
        assert build(make, KEY, shape, 10, "classification", precision="tf32").products is None
    with pytest.raises(ValueError, match="model PrincipalDirection is not a network"):
        build(PrincipalDirection, KEY, (20,), 10, "classification", [torch.ones(4, 20)], precision="bf16")


def test_refusals() -> None:
    with pytest.raises(ValueError, match="precision=fp16 must be one of fp32, tf32, bf16"):
        product_type("fp16")
    with pytest.raises(ValueError, match="precision=tf32 needs an NVIDIA GPU of compute capability 8.0 or more"):
        set_tf32("tf32", torch.device("cpu"))
