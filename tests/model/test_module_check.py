"""Modules that torch accepts and no run can train as they are meant: each is refused, or said, in one line."""

import functools
import logging

import numpy as np
import pytest
import torch
from torch import nn

from fedcomp.model.build import build
from fedcomp.random.keys import Key
from tests.looped import looped
from tests.refused import one_line_error


class Net(nn.Module):
    """Two layers, of which a test replaces what it is about."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x)))


class InAList(Net):
    def __init__(self) -> None:
        super().__init__()
        self.layers = {"one": [nn.Linear(6, 6)]}

    def forward(self, x):
        return super().forward(self.layers["one"][0](x))


class PlainTensor(Net):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.ones(6, requires_grad=True)

    def forward(self, x):
        return super().forward(x * self.scale)


class Lazy(Net):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.LazyLinear(3)


class Double(Net):
    def __init__(self) -> None:
        super().__init__()
        self.double()

    def forward(self, x):
        return super().forward(x.double()).float()


class TiedByMemory(Net):
    def __init__(self) -> None:
        super().__init__()
        self.second = nn.Linear(6, 6)
        self.second.weight = nn.Parameter(self.first.weight.t())

    def forward(self, x):
        return super().forward(self.second(x))


class Two(Net):
    def forward(self, x):
        return super().forward(x), x


class ChangesAConstant(Net):
    """Divides by a running scale, which it registers as a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(()), persistent=False)

    def forward(self, x):
        if self.training:
            self.scale.mul_(0.9).add_(0.1 * x.detach().abs().mean())
        return super().forward(x / self.scale)


class ReplacesAConstant(ChangesAConstant):
    """It is another tensor afterwards, and the outputs do not depend on it."""

    def forward(self, x):
        self.scale = x.detach().abs().mean()
        return self.last(x)


class FillsAConstant(ChangesAConstant):
    """The same in every call: a table that is made when it is first needed."""

    def forward(self, x):
        self.scale.fill_(2.0)
        return Net.forward(self, x / self.scale)


class NoGradient(Net):
    def forward(self, x):
        return super().forward(x).detach()


class Unfilled(Net):
    def __init__(self) -> None:
        super().__init__()
        nn.init.constant_(self.last.weight, torch.nan)  # as torch.empty may leave it


class DividesByZero(Net):
    def forward(self, x):
        return super().forward(x) / (x[:, :1] * 0)


@looped(
    "module, words",
    [
        (Unfilled, "^model Unfilled gives outputs that are not finite.*: fill last.weight"),
        (DividesByZero, "^model DividesByZero gives outputs that are not finite, .* look for a division by 0"),
        (InAList, r"^model InAList keeps a Linear in layers, where torch finds no parameters: .* take nn.ModuleList"),
        (PlainTensor, r"^model PlainTensor keeps a tensor that requires a gradient in scale.* take nn.Parameter"),
        (Lazy, "^model Lazy has a lazy layer: the size of last.weight is not known"),
        (Double, "^model Double has first.weight in torch.float64, but trained parameters are torch.float32"),
        (TiedByMemory, "two parameters in the same memory, first.weight and second.weight"),
        (Two, "^model Two gives a tuple; it must give one tensor"),
        (ChangesAConstant, "^model ChangesAConstant changes its buffer scale in training, which persistent=False"),
        (ReplacesAConstant, "^model ReplacesAConstant changes its buffer scale in training"),
        (NoGradient, "^model NoGradient gives outputs without a gradient"),
    ],
)
def test_what_cannot_be_trained_is_refused(module, words: str) -> None:
    with one_line_error(words):
        build(module, Key(), (6,), 3, "classification")


class HalfDetached(Net):
    def forward(self, x):
        return self.last(torch.tensor(np.tanh(self.first(x).detach().numpy())))


class Probabilities(Net):
    def forward(self, x):
        return super().forward(x).softmax(1)


class Sigmoids(Net):
    def forward(self, x):
        return super().forward(x).sigmoid()


class SendsAConstant(Net):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("positions", torch.ones(6))
        self.register_buffer("angles", torch.ones(6), persistent=False)

    def forward(self, x):
        return super().forward(x * self.positions * self.angles)


class ReadsTheBatch(Net):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6, track_running_stats=False)

    def forward(self, x):
        return super().forward(self.norm(x))


class HeldTwice(Net):
    """In a list too, and with a frozen part that is in one alone: both are what they look like."""

    def __init__(self) -> None:
        super().__init__()
        self.both = [self.first, self.last]
        self.teacher = [nn.Linear(6, 6).requires_grad_(False)]

    def forward(self, x):
        return self.both[1](torch.relu(self.both[0](x)) + self.teacher[0](x))


class ReadsTheFirst(Probabilities):
    """The first samples of a batch give the same whatever follows them, but not alone."""

    def forward(self, x):
        return super().forward(x - x[0]).log()


class Squeezes(Probabilities):
    def forward(self, x):
        return self.last(x).squeeze()


class Overwrites(Probabilities):
    def forward(self, x):
        x -= 1
        return self.last(x)


class Seeds(Probabilities):
    def __init__(self):
        torch.manual_seed(3)
        super().__init__()


class DrawsByNumPy(Probabilities):
    def __init__(self):
        super().__init__()
        self.last.bias.data += np.random.rand()  # noqa: NPY002


@looped(
    "module, words",
    [
        (Overwrites, "^model Overwrites writes into its input, which is the run's: take x = x - 1"),
        (Seeds, "^the model calls torch.manual_seed, so that all seeds would begin with the same parameters"),
        (DrawsByNumPy, "^model DrawsByNumPy draws from NumPy's global generator, .* draw with torch, whose draws come"),
    ],
)
def test_what_no_seed_repeats_is_refused(module, words: str) -> None:
    with one_line_error(words):
        build(module, Key(), (6,), 3, "classification")


@looped(
    "module, said",
    [
        (HalfDetached, "model HalfDetached has no gradient of first.weight, first.bias, on random inputs"),
        (Probabilities, "model Probabilities gives probabilities, as by softmax or sigmoid, and the loss takes"),
        (Sigmoids, "model Sigmoids gives probabilities"),
        (
            SendsAConstant,
            "model SendsAConstant keeps positions as it is in training, which is sent with the statistics",
        ),
        (ReadsTheBatch, "model ReadsTheBatch in evaluation: a sample's outputs depend on the other samples"),
        (ReadsTheFirst, "model ReadsTheFirst in evaluation: a sample's outputs depend on the other samples"),
        (
            Squeezes,
            "model Squeezes takes no batch of one sample, which a client's last batch can be: its outputs are (3,)",
        ),
        (HeldTwice, ""),
        (FillsAConstant, ""),
    ],
)
def test_what_is_odd_is_said(module, said: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "fedcomp"):
        build(module, Key(), (6,), 3, "classification")
    assert bool(caplog.records) == bool(said)
    assert said in caplog.text


def test_probabilities_are_an_ordinary_output_of_a_regression(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "fedcomp"):
        build(functools.partial(Probabilities), Key(), (6,), 3, "regression")
    assert not caplog.records
