"""Frozen tensors (`requires_grad=False`): a base that all clients share, in every form of a model."""

import copy
from collections.abc import Callable

import torch
from torch import nn

from fedcomp.memory.probe import LiveTensors
from fedcomp.model.batched.functional import Functional
from fedcomp.model.batched.stacked import Stacked
from fedcomp.model.build import build
from fedcomp.model.contract import Batch, Model
from fedcomp.model.flat import draw, reset, trained_parameters
from fedcomp.model.loss import loss_of
from fedcomp.random.keys import Key
from tests.looped import looped
from tests.model.plain_modules import batch
from tests.model.test_gradient import COHORTS, IMAGE, check

LOSS = loss_of("classification")
KEY = Key(("test", "frozen"))


class Partly(nn.Sequential):
    """A chain whose tensors of these names are frozen."""

    def __init__(self, layers: list[nn.Module], *names: str) -> None:
        super().__init__(*layers)
        for name in names:
            self.get_parameter(name).requires_grad_(False)


def perceptron(*frozen: str) -> nn.Module:
    return Partly([nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)], *frozen)


def small_cnn(*frozen: str) -> nn.Module:
    return Partly([nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(105, 4)], *frozen)


def normalised(*frozen: str) -> nn.Module:
    layers = [nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Tanh(), nn.Conv2d(4, 4, 3, groups=2), nn.Flatten()]
    return Partly([*layers, nn.Linear(140, 4)], *frozen)


CASES = {
    "first dense": (lambda: perceptron("0.weight", "0.bias"), (6,)),
    "last dense, and a bias": (lambda: perceptron("2.weight", "0.bias"), (6,)),
    "all but the first weight": (lambda: perceptron("0.bias", "2.weight", "2.bias"), (6,)),
    "first convolution": (lambda: small_cnn("0.weight", "0.bias"), IMAGE),
    "a convolution's weight": (lambda: small_cnn("0.weight"), IMAGE),
    "a convolution's bias": (lambda: small_cnn("0.bias"), IMAGE),
    "scales, and a convolution behind them": (lambda: normalised("1.weight", "3.weight", "3.bias"), IMAGE),
}


def functional(module: nn.Module, shape: tuple[int, ...]) -> Functional:
    """Clients all at once, by `vmap`, also with empty places."""
    model = Functional(module, LOSS, shape)
    model.slow_by_vmap = False
    return model


def one_after_another(module: nn.Module, shape: tuple[int, ...]) -> Functional:
    model = Functional(module, LOSS, shape)
    model.vmap_refused = True
    return model


FORMS: dict[str, Callable[[nn.Module, tuple[int, ...]], Model]] = {
    "layers": lambda module, shape: Stacked(module, LOSS),
    "vmap": functional,
    "one after another": one_after_another,
    "as built": lambda module, shape: build(lambda: module, KEY, shape, 4, "classification"),
}


@looped("cohort", COHORTS)
@looped("name", CASES)
@looped("form", FORMS)
def test_gradients_are_the_modules_own(form: str, name: str, cohort: str) -> None:
    make, shape = CASES[name]
    model = FORMS[form](draw(make, KEY), shape)
    check(model, LOSS, *COHORTS[cohort], shape, 4, "classification")
    if form == "vmap":
        assert not model.vmap_refused


def test_only_trained_tensors_are_in_the_row() -> None:
    module = draw(CASES["scales, and a convolution behind them"][0], KEY)
    model = Stacked(module, LOSS)
    theta, stats = model.init(KEY)
    assert len(theta) == model.dim == sum(one.numel() for one in trained_parameters(module))
    assert len(stats) == model.num_stats == 8
    assert sorted(model.frozen) == ["1.weight", "3.bias", "3.weight"]
    assert sum(tensor.size for tensor in model.tensors) == model.dim


@looped("form", ["layers", "layers in bf16", "vmap", "one after another"])
@looped("images", [False, True])
def test_many_clients_share_one_frozen_tensor(form: str, images: bool) -> None:
    """The tensors of a step of 16 clients take less than 16 copies of the frozen one would."""
    wide = nn.Conv2d(64, 64, 3, padding=1) if images else nn.Linear(200, 200)
    first = nn.Conv2d(1, 64, 1) if images else nn.Linear(3, 200)
    shape = (1, 2, 2) if images else (3,)
    last = nn.Linear(256 if images else 200, 4)
    module = Partly([first, wide, nn.ReLU(), nn.Flatten(), last], "1.weight", "1.bias")
    in_bf16 = form == "layers in bf16"
    model = Stacked(module, LOSS, precision="bf16") if in_bf16 else FORMS[form](module, shape)
    theta, stats = (part.repeat(16, 1) for part in model.init(KEY))
    x, y = batch(16, 2, shape, 4, "classification", torch.Generator())
    x = x.float()
    model.gradient(theta, Batch(x, y, None, stats))
    with LiveTensors() as live:
        model.gradient(theta, Batch(x, y, None, stats))
    assert live.peak < 16 * 4 * wide.weight.numel()


def test_threads_share_the_frozen_tensors() -> None:
    model = functional(draw(CASES["first dense"][0], KEY), (6,))
    assert model._worker()[0].weight is model.module[0].weight
    assert model._worker()[2].weight is not model.module[2].weight


def test_a_ready_modules_frozen_tensors_stay() -> None:
    module = perceptron("0.weight")
    before = copy.deepcopy(module)
    reset(module)
    assert torch.equal(module[0].weight, before[0].weight)
    assert not torch.equal(module[2].weight, before[2].weight)
