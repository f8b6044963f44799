"""Every stacked form against the plain module: gradients, losses, running statistics, outputs, in float64."""

from itertools import product

import pytest
import torch
from torch import nn

from fedcomp.model.batched.backward.mlp import Perceptron
from fedcomp.model.batched.functional import Functional
from fedcomp.model.batched.stacked import Stacked
from fedcomp.model.build import build
from fedcomp.model.contract import Batch
from fedcomp.model.flat import draw
from fedcomp.model.loss import loss_of, mean_loss
from fedcomp.model.networks.cnn import cnn4, cnn6, lenet5
from fedcomp.model.networks.cnn_bn import cnn4_bn, cnn8_bn
from fedcomp.model.networks.linear import linear, logistic
from fedcomp.model.networks.mlp import mlp
from fedcomp.model.tunable import FORMS
from fedcomp.random.keys import Key
from tests.looped import looped
from tests.model.plain_modules import assert_close, batch, plain_gradient, plain_outputs, rows

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")

IMAGE = (2, 9, 7)
KEY = Key(("test", "model"))


def chain(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


def flat(num_features: int, *layers: nn.Module) -> nn.Module:
    """The layers, then a dense one of four outputs on what they give."""
    return chain(*layers, nn.Flatten(), nn.Linear(num_features, 4))


# name: module of four outputs; each is small, and together they hold every known layer.
IMAGES = {
    "conv": lambda: flat(105, nn.Conv2d(2, 3, 3)),
    "conv strided dilated padded": lambda: flat(135, nn.Conv2d(2, 3, (3, 2), (2, 1), (1, 2), (1, 2)), nn.Tanh()),
    "conv padding same, no bias": lambda: flat(189, nn.Conv2d(2, 3, 3, padding="same", bias=False)),
    "conv padding same, even kernel": lambda: flat(189, nn.Conv2d(2, 3, (2, 4), padding="same", dilation=(1, 2))),
    "conv groups": lambda: flat(140, nn.Conv2d(2, 4, 3, groups=2), nn.GELU()),
    "relu before max-pool": lambda: flat(18, nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2)),
    "max-pool with padding and stride": lambda: flat(36, nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.Conv2d(2, 3, 2)),
    "average pool": lambda: flat(18, nn.Conv2d(2, 3, 3), nn.AvgPool2d(2), nn.Sigmoid()),
    "adaptive pool": lambda: chain(nn.Conv2d(2, 4, 3), nn.LeakyReLU(0.1), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    "batch norm 2d": lambda: flat(18, nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2)),
    "batch norm 2d first, not affine": lambda: flat(126, nn.BatchNorm2d(2, affine=False, momentum=0.3)),
    "relu after a flattened tanh": lambda: flat(105, nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.ReLU()),
}
FEATURES = {
    "batch norm 1d": lambda: chain(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4)),
    "nested, identity, dropout of 0": lambda: chain(
        chain(nn.Identity(), nn.Linear(5, 6), nn.Tanh()), nn.Dropout(0.0), chain(nn.Linear(6, 4))
    ),
    "activation on the input": lambda: chain(nn.ReLU(), nn.Linear(5, 4), nn.Tanh(), nn.ReLU()),
}
# name: (module, shape of one sample, outputs)
LAYERS = {name: (make, IMAGE, 4) for name, make in IMAGES.items()}
LAYERS |= {name: (make, (5,), 4) for name, make in FEATURES.items()}
LAYERS["one channel in and out"] = (lambda: flat(35, nn.Conv2d(1, 1, 3), nn.ReLU()), (1, 9, 7), 4)
MODELS = {
    "lenet5": (lambda: lenet5((1, 28, 28), 10), (1, 28, 28), 10),
    "cnn4": (lambda: cnn4((1, 8, 8), 10), (1, 8, 8), 10),
    "cnn6": (lambda: cnn6((3, 8, 8), 10), (3, 8, 8), 10),
    "cnn4_bn": (lambda: cnn4_bn((1, 28, 28), 10), (1, 28, 28), 10),
    "cnn8_bn": (lambda: cnn8_bn((3, 32, 32), 10), (3, 32, 32), 10),
}
PERCEPTRONS = {
    "mlp": (lambda: mlp((6,), 4), (6,), 4),
    "mlp deep": (lambda: mlp((6,), 4, hidden=(5, 7, 3)), (6,), 4),
    "mlp without bias": (lambda: mlp((6,), 4, hidden=(5,), bias=False), (6,), 4),
    "mlp, relu on logits": (lambda: mlp((6,), 4, hidden=(9,), relu_on_logits=True), (6,), 4),
    "mlp on images": (lambda: mlp(IMAGE, 4, hidden=(5,)), IMAGE, 4),
    "no relu between": (lambda: chain(nn.Linear(6, 5), nn.Linear(5, 4)), (6,), 4),
    "linear": (lambda: linear((6,), 4, bias=False), (6,), 4),
    "logistic": (lambda: logistic((6,), 4, "classification"), (6,), 4),
    "one output": (lambda: linear((6,), 1), (6,), 1),
}
STACKED = LAYERS | MODELS
ALL = STACKED | PERCEPTRONS

# name: (clients, batch, real samples of each client or None)
COHORTS = {
    "one client": (1, 3, None),
    "three clients, odd batch": (3, 5, None),
    "ragged, one client empty": (3, 5, (5, 0, 3)),
    "one ragged client": (1, 5, (2,)),
    "one empty client": (1, 3, (0,)),
}


def mask(num_clients: int, size: int, real: tuple[int, ...] | None) -> torch.Tensor | None:
    """Weights whose real samples are not the first ones: the last `real[i]` places of client i."""
    if real is None:
        return None
    return torch.stack([(torch.arange(size) >= size - count).float() for count in real])


def check(model, loss, num_clients, size, real, shape, num_outputs, task) -> None:
    generator = torch.Generator().manual_seed(7)
    theta, stats = rows(model, num_clients, generator)
    x, y = batch(num_clients, size, shape, num_outputs, task, generator)
    weight = mask(num_clients, size, real)
    before = [part.clone() for part in (theta, stats, x, y)]
    got = model.gradient(theta, Batch(x, y, weight, stats))
    expected = plain_gradient(model.module, loss, theta, stats, x, y, weight)
    assert_close(got.grad, expected.grad)
    assert_close(got.loss, expected.loss)
    assert_close(got.stats, expected.stats)
    assert got.grad.dtype == got.loss.dtype == torch.float64
    loss, after = model.batch_loss(theta, Batch(x, y, weight, stats))
    assert_close(loss, expected.loss)
    assert_close(after, expected.stats)
    assert not any(part.requires_grad for part in (loss, after, got.grad, got.loss, got.stats))
    check_outputs(model, theta, Batch(x, y, weight, stats), expected)
    for part, kept in zip((theta, stats, x, y), before):
        assert torch.equal(part, kept), "an argument was overwritten"
    if real is not None:
        for client, count in enumerate(real):
            if count == 0:
                assert not got.grad[client].any()
                assert got.loss[client] == 0
    assert_close(model.outputs(theta[0], stats[0], x[0]), plain_outputs(model.module, theta[0], stats[0], x[0]))


def check_outputs(model, theta, given: Batch, expected) -> None:
    """In training, gradient and loss follow from the outputs; in evaluation, they are each client's own."""
    leaf = theta.clone().requires_grad_()
    outputs, after = model.client_outputs(leaf, given, training=True)
    loss = mean_loss(model.loss, outputs, given.y, given.weight)
    assert_close(torch.autograd.grad(loss.sum(), leaf)[0], expected.grad)
    assert_close(loss.detach(), expected.loss)
    assert_close(after, expected.stats)
    assert not after.requires_grad
    outputs, after = model.client_outputs(theta, given, training=False)
    for client, own in enumerate(outputs):
        assert_close(own, plain_outputs(model.module, theta[client], given.stats[client], given.x[client]))
    assert torch.equal(after, given.stats)


# Of whole networks one cohort, which has everything.
MANY = ("three clients, odd batch", "ragged, one client empty", "one empty client")
PAIRS = [(name, cohort) for name, cohort in product(ALL, MANY) if name not in MODELS or cohort == MANY[1]]


@looped("name, cohort", PAIRS)
def test_stacked_equals_the_module(name, cohort):
    make, shape, num_outputs = ALL[name]
    model = Stacked(draw(make, KEY), loss_of("classification"))
    check(model, model.loss, *COHORTS[cohort], shape, num_outputs, "classification")


@looped("form", [form for form in FORMS if form != "grouped"])
@looped("cohort", COHORTS)
@looped("name", [name for name in LAYERS if "conv" in name or "one channel" in name])
def test_every_form_of_convolution_equals_the_module(name, cohort, form):
    make, shape, num_outputs = LAYERS[name]
    model = Stacked(draw(make, KEY), loss_of("classification"))
    model.set_conv_algorithms([form])
    assert [layer.form for layer in model.convolutions] == [form]
    check(model, model.loss, *COHORTS[cohort], shape, num_outputs, "classification")


@looped("task", ["classification", "regression"])
@looped("cohort", COHORTS)
@looped("name", PERCEPTRONS)
def test_hand_written_backward_equals_the_module(name, cohort, task):
    make, shape, num_outputs = PERCEPTRONS[name]
    model = Perceptron(draw(make, KEY), loss_of(task))
    check(model, model.loss, *COHORTS[cohort], shape, num_outputs, task)


@looped("cohort", COHORTS)
@looped("name", [*LAYERS, "mlp deep"])
def test_fallback_equals_the_module(name, cohort):
    make, shape, num_outputs = ALL[name]
    model = Functional(draw(make, KEY), loss_of("classification"), shape)
    check(model, model.loss, *COHORTS[cohort], shape, num_outputs, "classification")


def test_squared_error_through_stacked_layers():
    make, shape, num_outputs = LAYERS["batch norm 1d"]
    model = Stacked(draw(make, KEY), loss_of("regression"))
    check(model, model.loss, 3, 5, (5, 0, 3), shape, num_outputs, "regression")


def test_build_chooses_the_fastest_form():
    def chosen(make, shape, num_outputs):
        return type(build(make, KEY, shape, num_outputs, "classification"))

    assert all(issubclass(chosen(*case), Perceptron) for case in PERCEPTRONS.values())
    assert all(issubclass(chosen(*case), Stacked) for case in STACKED.values())


def test_rows_that_are_views_of_a_wider_tensor():
    model = Perceptron(mlp((6,), 4, hidden=(5,)), loss_of("classification"))
    generator = torch.Generator().manual_seed(3)
    theta, stats = rows(model, 3, generator)
    x, y = batch(3, 4, (6,), 4, "classification", generator)
    wide = torch.zeros(6, model.dim + 3, dtype=torch.float64)
    wide[::2, 2:-1] = theta
    given, same = Batch(x, y, None, stats), theta[:1].expand(3, -1)
    expected = model.gradient(theta, given).grad
    assert_close(model.gradient(wide[::2, 2:-1], given).grad, expected)
    assert_close(model.gradient(theta.t().contiguous().t(), given).grad, expected)
    assert_close(model.gradient(same, given).grad, model.gradient(same.contiguous(), given).grad)
