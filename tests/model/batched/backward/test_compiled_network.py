"""Compiled small networks against torch: blocks of convolutions, whole gradients, and what has such a form."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.algorithm.contract import Models
from fedcomp.core.accelerated import AGREES, Verdicts, close, judged_by, plainly
from fedcomp.dataset.images import digits
from fedcomp.model.batched.backward import compiled_network
from fedcomp.model.batched.backward.compiled_network import CompiledNetwork, CompiledPerceptron
from fedcomp.model.batched.backward.mlp import Perceptron
from fedcomp.model.batched.compiled import conv_backward_numba, conv_numba, network_numba
from fedcomp.model.batched.compiled.conv_numba import SLACK, num_masks, pooled
from fedcomp.model.batched.compiled.geometry import Geometry
from fedcomp.model.batched.stacked import Stacked
from fedcomp.model.build import build
from fedcomp.model.contract import Batch
from fedcomp.model.networks.cnn import lenet5
from fedcomp.model.networks.mlp import mlp
from fedcomp.random.keys import Key
from fedcomp.simulation.evaluation import metrics_of
from tests.looped import looped
from tests.model.plain_modules import batch, rows

pytestmark = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "NO AVX"), reason="the tensor code is used on this processor"
)

KEY = Key(("test", "cnn"))
SIZES = {
    "LeNet's first": Geometry(1, 28, 28, 2, 6, 5, 5, 2, 2, 0, 1, 0, 64),
    "LeNet's second": Geometry(6, 14, 14, 0, 16, 5, 5, 2, 2, 0, 1, 0, 32),
    "odd sides, largest, margin": Geometry(3, 9, 7, 1, 5, 3, 2, 2, 2, 1, 1, 1, 13),
    "largest without relu": Geometry(1, 8, 8, 1, 1, 3, 3, 2, 2, 1, 0, 0, 64),
    "windows of 3 x 2": Geometry(2, 11, 9, 0, 3, 2, 4, 3, 2, 0, 1, 0, 30),
    "mean without relu, 1 x 1": Geometry(4, 10, 10, 0, 10, 1, 1, 2, 2, 0, 0, 3, 15),
    "no pooling": Geometry(2, 9, 9, 2, 7, 3, 3, 1, 1, 0, 1, 1, 17),
    "convolution alone": Geometry(2, 12, 12, 1, 14, 2, 2, 1, 1, 0, 0, 0, 11),
}


def _plain(z: Tensor, size: Geometry) -> Tensor:
    """ReLU and pooling as torch computes them, of z (B, O, H, W)."""
    z = functional.relu(z) if size.relu else z
    if size.pool_h * size.pool_w == 1:
        return z
    return (functional.max_pool2d if size.maximum else functional.avg_pool2d)(z, (size.pool_h, size.pool_w))


def _buffer(*shape: int, kind: torch.dtype = torch.float32) -> Tensor:
    """NaN, or large numbers, so that what is read and was never written shows."""
    return torch.full((int(np.prod(shape)) + SLACK,), float("nan") if kind == torch.float32 else 0xAAAA, dtype=kind)


def _forward(size: Geometry, x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Packed input, output with margins and masks of x (B, C, H, W)."""
    (height, width), pad, margin = pooled(size), size.pad, size.margin
    packed = _buffer(size.channels, size.height + 2 * pad, size.width + 2 * pad, size.batch)
    samples = x.permute(0, 2, 3, 1).flatten(1).numpy()
    conv_numba.pack(samples, np.arange(size.batch), packed.numpy(), size)
    out = _buffer(size.out, height + 2 * margin, width + 2 * margin, size.batch)
    masks = torch.full((size.out * height * width * num_masks(size),), 0xAAAA, dtype=torch.uint16)
    conv_numba.forward(packed.numpy(), weight.view(-1).numpy(), bias.numpy(), out.numpy(), masks.numpy(), size)
    return packed, out, masks


@looped("name", SIZES)
def test_blocks_are_torchs_but_for_rounding(name: str) -> None:
    size = SIZES[name]
    generator = torch.Generator().manual_seed(len(name))
    x = torch.randn(size.batch, size.channels, size.height, size.width, generator=generator)
    weight = torch.randn(size.out, size.channels, size.kernel_h, size.kernel_w, generator=generator)
    bias = torch.randn(size.out, generator=generator)
    packed, out, masks = _forward(size, x, weight, bias)
    leaves = [part.double().requires_grad_() for part in (x, weight, bias)]
    expected = _plain(functional.conv2d(*leaves, padding=size.pad), size)
    margins = [size.margin] * 4
    framed = functional.pad(expected.detach(), margins).permute(1, 2, 3, 0)
    torch.testing.assert_close(out[:-SLACK].view(framed.shape).double(), framed, rtol=1e-5, atol=1e-5)
    g = torch.randn(expected.shape, generator=generator)
    above = torch.cat([g.permute(1, 2, 3, 0).reshape(-1), torch.full((SLACK,), float("nan"))])
    of_weight, of_bias = torch.full_like(weight, torch.nan), torch.full_like(bias, torch.nan)
    of_x = _buffer(size.channels, size.height, size.width, size.batch)
    for wanted in (of_x, torch.empty(0)):
        conv_backward_numba.backward(
            above.numpy(),
            masks.numpy(),
            packed.numpy(),
            weight.view(-1).numpy(),
            of_weight.view(-1).numpy(),
            of_bias.numpy(),
            wanted.numpy(),
            size,
        )
        found = of_x[:-SLACK].view(size.channels, size.height, size.width, size.batch).permute(3, 0, 1, 2)
        for got, plain in zip((found, of_weight, of_bias), torch.autograd.grad(expected, leaves, g.double(), True)):
            torch.testing.assert_close(got.double(), plain, rtol=1e-4, atol=1e-5 * float(plain.abs().max()))


@looped("relu", [0, 1])
@looped("maximum, window", [(0, (2, 2)), (1, (2, 2)), (0, (3, 3)), (1, (2, 3)), (0, (1, 1))])
@looped("samples", [64, 21])
def test_pooling_is_torchs_bit_for_bit(relu: int, maximum: int, window: tuple[int, int], samples: int) -> None:
    """A 1 x 1 convolution of weight 1 hands its input on; with ties, zeros of both signs, infinities and NaNs."""
    size = Geometry(1, 7, 13, 0, 1, 1, 1, *window, maximum, relu, 0, samples)
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(samples, 1, 7, 13, generator=generator)
    kinds = torch.randint(0, 12, x.shape, generator=generator)
    for kind, value in enumerate((0.0, -0.0, 1.0, float("inf"), float("-inf"), float("nan"))):
        x[kinds == kind] = value
    _, out, masks = _forward(size, x, torch.ones(1, 1, 1, 1), torch.tensor([-0.0]))
    leaf = x.clone().requires_grad_()
    expected = _plain(leaf, size)
    assert _same(out[:-SLACK].view(*pooled(size), samples).permute(2, 0, 1), expected[:, 0])
    g = torch.randn(expected.shape, generator=generator)
    above = torch.cat([g.permute(1, 2, 3, 0).reshape(-1), torch.zeros(SLACK)])
    (wanted,) = torch.autograd.grad(expected, leaf, g)
    (height, width), line = pooled(size), 13 * samples + SLACK
    found = torch.zeros(size.pool_h * line)
    for y in range(height):
        strides = size.pool_h * line, line, samples
        conv_backward_numba.unpool(above.numpy(), masks.numpy(), found.numpy(), y, 0, strides, size)
        row = found.view(size.pool_h, line)[:, : width * size.pool_w * samples].view(size.pool_h, -1, samples)
        at = y * size.pool_h
        assert _same(row.permute(2, 0, 1), wanted[:, 0, at : at + size.pool_h, : width * size.pool_w])


def _same(got: Tensor, expected: Tensor) -> bool:
    """Equal numbers, NaNs in the same places; zeros may differ in sign, as they do between torch's own kernels."""
    return torch.equal(got.isnan(), expected.isnan()) and torch.equal(got.nan_to_num(7.0), expected.nan_to_num(7.0))


def _chain(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


NETWORKS = {
    "lenet5": (lambda: lenet5((1, 28, 28), 10), (1, 28, 28)),
    "largest, padded, no bias": (
        lambda: _chain(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 10, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(10 * 36, 10),
        ),
        (3, 12, 12),
    ),
    "relu on logits": (
        lambda: _chain(nn.Conv2d(2, 3, (2, 3)), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(3 * 20, 10), nn.ReLU()),
        (2, 9, 12),
    ),
    "perceptron": (lambda: mlp((64,), 10), (64,)),
    "odd widths": (lambda: mlp((17,), 10, hidden=(33, 7)), (17,)),
    "no hidden layer": (lambda: mlp((3,), 10, hidden=()), (3,)),
    "wide": (lambda: mlp((130,), 10, hidden=(257,)), (130,)),
    "layers without bias, relu or both": (
        lambda: _chain(nn.Linear(9, 5, bias=False), nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 10), nn.ReLU()),
        (9,),
    ),
    "perceptron of colour images": (lambda: _chain(nn.Flatten(), nn.Linear(60, 10)), (3, 4, 5)),
}
PERCEPTRONS = [name for name, (make, _) in NETWORKS.items() if not any(isinstance(m, nn.Conv2d) for m in make())]


@looped("name", NETWORKS)
@looped("case", [(1, 64, None), (3, 9, None), (1, 2, None), (3, 20, (20, 0, 7)), (1, 10, (3,))])
@looped("task", ["classification", "regression"])
def test_gradients_are_those_of_stacked_layers(name, case, task) -> None:
    make, shape = NETWORKS[name]
    num_clients, size, real = case
    model = build(make, KEY, shape, 10, task)
    assert isinstance(model, CompiledNetwork)
    generator = torch.Generator().manual_seed(7)
    theta, stats = (part.float() for part in rows(model, num_clients, generator))
    x, y = batch(num_clients, size, shape, 10, task, generator)
    x, y = x.float(), y if task == "classification" else y.float()
    weight = None if real is None else torch.stack([(torch.arange(size) < count).float() for count in real])
    kept = [part.clone() for part in (theta, x)]
    whole = Batch(x, y, weight, stats)
    got = model.gradient(theta, whole)
    twin = (Perceptron if name in PERCEPTRONS else Stacked)(model.module, model.loss)
    assert isinstance(model, CompiledPerceptron) == (name in PERCEPTRONS)
    expected = twin.gradient(theta.double(), Batch(x.double(), y, weight, stats.double()))
    assert got.grad.dtype == torch.float32
    torch.testing.assert_close(
        got.grad.double(), expected.grad, rtol=1e-4, atol=1e-5 * float(expected.grad.abs().max())
    )
    torch.testing.assert_close(got.loss.double(), expected.loss, rtol=1e-5, atol=1e-6)
    alone, _ = model.batch_loss(theta, whole)
    assert alone.dtype == torch.float64
    torch.testing.assert_close(alone, expected.loss, rtol=1e-5, atol=1e-6)
    assert model.goes_through_models(theta)
    assert not model.goes_through_models(theta.double())
    first = Batch(*(None if part is None else part[:1].expand_as(part) for part in (x, y, weight, stats)))
    copied = Batch(*(None if part is None else part.contiguous() for part in (first.x, first.y, first.weight, stats)))
    torch.testing.assert_close(model.batch_loss(theta, first)[0], model.batch_loss(theta, copied)[0])
    assert torch.equal(theta, kept[0])
    assert torch.equal(x, kept[1])
    each = (slice(row, row + 1) for row in range(num_clients))
    one_by_one = [model.gradient(theta[own], whole[own]).grad for own in each]
    assert torch.equal(got.grad, torch.cat(one_by_one))
    samples = x[0].repeat(5, *[1] * len(shape))
    outputs = twin.outputs(theta[0].double(), stats[0].double(), samples.double())
    torch.testing.assert_close(model.outputs(theta[0], stats[0], samples).double(), outputs, rtol=1e-4, atol=1e-5)
    by_column = theta.double().mT.contiguous().mT
    torch.testing.assert_close(twin.outputs(by_column[0], stats[0].double(), samples.double()), outputs)
    if isinstance(model, CompiledPerceptron):
        assert torch.equal(model.outputs_of_rows(theta, samples)[0], model.outputs(theta[0], stats[0], samples))
    layout = model.gradient(theta, Batch(x.movedim(2, -1).contiguous().movedim(-1, 2), y, weight, stats))
    assert torch.equal(got.grad, layout.grad)


@looped(
    "layers",
    [
        (nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 100, 10)),
        (nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(100, 10)),
        (nn.Conv2d(1, 4, 3, padding=(1, 0)), nn.ReLU(), nn.Flatten(), nn.Linear(480, 10)),
        (nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(400, 10)),
        (nn.Conv2d(1, 4, 3), nn.AvgPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(100, 10)),
        (nn.Conv2d(1, 4, 3), nn.MaxPool2d(3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(64, 10)),
        (nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(400, 10)),
        (nn.Conv2d(1, 4, 10), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(4, 10)),
    ],
)
def test_other_chains_stay_stacked(layers) -> None:
    assert type(build(lambda: _chain(*layers), KEY, (1, 12, 12), 10, "classification")) is Stacked


@looped("make, shape, kind", [(lenet5, (1, 28, 28), Stacked), (mlp, (64,), Perceptron)])
def test_other_products_and_processors_are_not_compiled(make, shape, kind) -> None:
    assert issubclass(type(build(make, KEY, shape, 10, "classification")), CompiledNetwork)
    assert type(build(make, KEY, shape, 10, "classification", precision="bf16")) is kind
    with pytest.MonkeyPatch.context() as patch:  # without fused multiply-add
        patch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
        patch.setattr("platform.machine", lambda: "x86_64")
        assert type(build(make, KEY, shape, 10, "classification")) is kind


@pytest.mark.parametrize("name", ["lenet5", "perceptron"])
def test_other_types_and_forms_are_computed_by_tensors(name, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr(network_numba, "gradient", refuse)
    monkeypatch.setattr(network_numba, "outputs", refuse)
    make, shape = NETWORKS[name]
    model = build(make, KEY, shape, 10, "classification")
    theta, stats = (part[None] for part in model.init(KEY))
    x = torch.randn(1, 4, *shape, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(1, 4, dtype=torch.int64)
    with pytest.raises(AssertionError, match="compiled"):
        model.gradient(theta, Batch(x, y, None, stats))
    with pytest.raises(AssertionError, match="compiled"):
        model.outputs(theta[0], stats[0], x[0])
    with judged_by(Verdicts(safe=True)):
        model.gradient(theta, Batch(x, y, None, stats))
        model.outputs(theta[0], stats[0], x[0])
    assert model.gradient(theta.double(), Batch(x, y, None, stats)).grad.dtype == torch.float64
    assert model.outputs(theta[0].double(), stats[0], x[0]).dtype == torch.float64
    if name == "lenet5":
        model.set_conv_algorithms(["looped", "looped"])
        assert model.gradient(theta, Batch(x, y, None, stats)).grad.isfinite().all()


@pytest.mark.parametrize("safe", [False, True])
def test_an_evaluation_asks_for_few_samples_at_once_where_they_are_compiled(safe, monkeypatch) -> None:
    data = digits.load()
    model = build(lambda: mlp((64,), 10), KEY, (64,), 10, "classification")
    theta, stats = model.init(KEY)
    asked = []
    monkeypatch.setattr(compiled_network, "EVALUATED_AT_ONCE", 16)
    outputs = type(model).outputs
    monkeypatch.setattr(type(model), "outputs", lambda *given: asked.append(len(given[3])) or outputs(*given))
    with judged_by(Verdicts(safe)):
        found = metrics_of({"test": Models(theta[None], stats[None])}, model, data)
    whole = data.normalise(data.test.x)
    expected = functional.cross_entropy(model.outputs(theta, stats, whole), data.test.y)
    torch.testing.assert_close(found["test/loss"].float(), expected)
    assert asked[0] == (len(whole) if safe else 16)


def test_masks_over_weights_of_one_magnitude_are_compiled() -> None:
    """Sums of them are exactly zero in many places, where rounding turns a ReLU on in one form and off in the other."""
    generator = torch.Generator().manual_seed(3)
    model = build(lenet5, KEY, (1, 28, 28), 10, "classification")
    signs = torch.randint(0, 2, (3, model.dim), generator=generator) * 2.0 - 1
    theta = 0.1 * signs * (torch.rand(3, model.dim, generator=generator) < 0.5)
    bytes_ = torch.zeros(3, 8, 1, 28, 28)
    bytes_[..., 8:20, 8:20] = torch.randint(0, 256, (3, 8, 1, 12, 12), generator=generator)
    given = Batch(bytes_ / 127.5 - 1, torch.arange(8).expand(3, 8), None, torch.zeros(3, 0))
    with judged_by(Verdicts()) as verdicts:
        model.gradient(theta, given)
    assert verdicts.found["compiled networks: gradients"] == AGREES
    apart = compiled_network.without_ties(theta)
    with plainly():
        expected = model.gradient(apart, given)
    assert close(model.gradient(apart, given).grad, expected.grad, 1e-5)
