"""Modules of a user: those that draw numbers without the run's keys are refused, those that draw none are taken."""

import numpy as np
import pytest
import torch
from torch import nn

from fedcomp.model.batched.functional import Functional
from fedcomp.model.build import build
from fedcomp.random.keys import Key
from tests.looped import looped
from tests.refused import one_line_error

KEY = Key(("run", 0, "model"))
DIGITS = (64,)


class Calls(nn.Module):
    """A user's module: `what` on the outputs of a layer with BatchNorm."""

    def __init__(self, what) -> None:
        super().__init__()
        self.dense, self.norm, self.what = nn.Linear(64, 10), nn.BatchNorm1d(10), what

    def forward(self, x):
        return self.what(self, self.norm(self.dense(x)))


class Part(nn.Module):
    """A user's module with one part between two layers; `pick` takes its output."""

    def __init__(self, part, pick) -> None:
        super().__init__()
        self.part, self.pick, self.last = part, pick, nn.Linear(64, 10)

    def forward(self, x):
        return self.last(self.pick(self.part, x))


def _attention(part, x):
    return part(x[:, None], x[:, None], x[:, None])[0][:, 0]


def _lstm(part, x):
    return part(x.unflatten(1, (2, 32)))[0].flatten(1)


DRAWING = {
    "noise": (
        lambda: Calls(lambda self, x: x + torch.randn_like(x) if self.training else x),
        "model <lambda> draws random numbers by aten.randn_like.default, .* no form with the run's keys; use dropout",
    ),
    "rrelu": (lambda: Part(nn.RReLU(), nn.Module.__call__), "by aten.rrelu_with_noise"),
    "numpy": (
        lambda: Calls(lambda self, x: x + np.random.rand() if self.training else x),  # noqa: NPY002
        "in training by other means than torch's operations, such as NumPy.*use torch's dropout",
    ),
    "evaluation": (
        lambda: Calls(lambda self, x: nn.functional.dropout(x, 0.5)),
        "in evaluation mode too; .*training=self.training",
    ),
}
CALLS = []


def _counts(self, x):
    self.calls = getattr(self, "calls", 0) + 1
    return x


def _slows(self, x):
    self.seen = {"mean": 0.5 * getattr(self, "seen", {"mean": 0.0})["mean"] + x.detach().mean()}
    return x * float(1 + self.seen["mean"])


def _steps(self, x):
    self.norm.get_buffer("steps").add_(1)
    return x


def _stepping():
    module = Calls(_steps)
    module.norm.register_buffer("steps", torch.tensor(0))
    module.norm.momentum = None
    return module


STATEFUL = {
    "a count": (lambda: Calls(_counts), "model <lambda> keeps state outside .* a call changes its attribute calls; "),
    "a mean": (lambda: Calls(_slows), "a call changes its attribute seen; .* make it a floating-point buffer"),
    "a global": (
        lambda: Calls(lambda self, x: x + len(CALLS) * (CALLS.append(1) or 1)),
        "other means than torch's operations, such as NumPy, or counts its calls",
    ),
    "a part's": (
        lambda: Part(Calls(_counts), lambda part, x: part(x).repeat(1, 7)[:, :64]),
        "its attribute part.calls",
    ),
    "a whole number": (_stepping, "changes its buffer norm.(steps|num_batches_tracked), which holds no floating-point"),
}


def _caches(self, x):
    if not hasattr(self, "scale"):
        self.scale, self.table = torch.ones(10), {"rows": [np.arange(3.0)]}
    self.last = x
    return x * self.scale


FIXED = {
    "a cache, and a note of the last call": lambda: Calls(_caches),
    "functional dropout of 0": lambda: Calls(lambda self, x: nn.functional.dropout(x, 0.0, self.training)),
    "attention": lambda: Part(nn.MultiheadAttention(64, 2, batch_first=True), _attention),
    "lstm": lambda: Part(nn.LSTM(32, 32, num_layers=2, batch_first=True), _lstm),
}


@looped("kind", DRAWING)
def test_a_module_that_draws_without_keys_is_refused(kind):
    state, (factory, line) = torch.get_rng_state(), DRAWING[kind]
    with one_line_error(line):
        build(factory, KEY, DIGITS, 10, "classification")
    assert torch.equal(torch.get_rng_state(), state)


@looped("kind", STATEFUL)
def test_a_module_with_state_of_its_own_is_refused(kind):
    factory, line = STATEFUL[kind]
    with pytest.raises(ValueError, match=line):
        build(factory, KEY, DIGITS, 10, "classification")


@looped("kind", FIXED)
def test_a_module_that_draws_nothing_is_taken_with_its_statistics(kind):
    model = build(FIXED[kind], KEY, DIGITS, 10, "classification", [torch.rand(5, *DIGITS)])
    assert isinstance(model, Functional)
    assert not model.draws_in_training
    assert all(float(buffer.sum()) in (0.0, 10.0) for buffer in model.module.buffers())
