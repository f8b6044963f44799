"""Modules that torch accepts and no run can train as they are meant: each is refused, or said, in one line."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedcomp.model.batched.functional import Functional
from fedcomp.model.build import build
from fedcomp.random.keys import Key
from tests.looped import looped
from tests.refused import one_line_error


class Net(nn.Module):
    """Two layers on six features, three outputs: a test gives another pass and other attributes."""

    def __init__(self, call: Callable[[Any, Tensor], Any], attributes: Callable[[], dict[str, Any]]) -> None:
        super().__init__()
        self.first, self.last, self.call = nn.Linear(6, 6), nn.Linear(6, 3), call
        for name, value in attributes().items():
            setattr(self, name, value)

    def forward(self, x):
        return self.call(self, x)

    def plain(self, x):
        return self.last(torch.relu(self.first(x)))


def net(call: Callable[[Any, Tensor], Any] = Net.plain, attributes: Callable[[], dict[str, Any]] = dict) -> Any:
    """A factory of a `Net`."""
    return partial(Net, call, attributes)


def built(factory, task: str = "classification"):
    return build(factory, Key(), (6,), 3, task)


def tied_by_memory() -> dict[str, Any]:
    first, second = nn.Linear(6, 6), nn.Linear(6, 6)
    second.weight = nn.Parameter(first.weight.t())
    return {"first": first, "second": second}


def unfilled() -> dict[str, Any]:
    last = nn.Linear(6, 3)
    nn.init.constant_(last.weight, torch.nan)  # as torch.empty may leave it
    return {"last": last}


def scale() -> dict[str, Any]:
    return {"scale": nn.Buffer(torch.ones(()), persistent=False)}


def changes_a_constant(self, x):
    """Divides by a running scale, which is registered as a constant."""
    if self.training:
        self.scale.mul_(0.9).add_(0.1 * x.detach().abs().mean())
    return self.plain(x / self.scale)


def replaces_a_constant(self, x):
    """It is another tensor afterwards, and the outputs do not depend on it."""
    self.scale = x.detach().abs().mean()
    return self.last(x)


def overwrites(self, x):
    x -= 1
    return self.last(x)


def seeds() -> dict[str, Any]:
    torch.manual_seed(3)
    return {"last": nn.Linear(6, 3)}


def drawn_by_numpy() -> dict[str, Any]:
    last = nn.Linear(6, 3)
    last.bias.data += np.random.rand()  # noqa: NPY002
    return {"last": last}


def norm() -> dict[str, Any]:
    return {"norm": nn.BatchNorm1d(6)}


def norm_that_counts() -> dict[str, Any]:
    counting = nn.BatchNorm1d(6, momentum=None)
    counting.register_buffer("steps", torch.tensor(0))
    return {"norm": counting}


def counts(self, x):
    self.calls = getattr(self, "calls", 0) + 1
    return self.plain(x)


def follows_a_mean(self, x):
    self.seen = {"mean": 0.5 * getattr(self, "seen", {"mean": 0.0})["mean"] + x.detach().mean()}
    return self.plain(x) * float(1 + self.seen["mean"])


def counts_in_a_buffer(self, x):
    self.norm.steps.add_(1)
    return self.plain(self.norm(x))


CALLS = []
REFUSED = {
    "unfilled": (net(attributes=unfilled), "^model Net gives outputs that are not finite.*: fill last.weight"),
    "divides by 0": (
        net(lambda self, x: self.plain(x) / (x[:, :1] * 0)),
        "^model Net gives outputs that are not finite, .* look for a division by 0",
    ),
    "in a list": (
        net(lambda self, x: self.plain(self.layers["one"][0](x)), lambda: {"layers": {"one": [nn.Linear(6, 6)]}}),
        r"^model Net keeps a Linear in layers, where torch finds no parameters: .* take nn.ModuleList",
    ),
    "plain tensor": (
        net(lambda self, x: self.plain(x * self.scale), lambda: {"scale": torch.ones(6, requires_grad=True)}),
        r"^model Net keeps a tensor that requires a gradient in scale.* take nn.Parameter",
    ),
    "lazy": (
        net(attributes=lambda: {"last": nn.LazyLinear(3)}),
        "^model Net has a lazy layer: the size of last.weight is not known",
    ),
    "float64": (
        net(lambda self, x: self.first(x.double()).float(), lambda: {"first": nn.Linear(6, 3, dtype=torch.float64)}),
        "^model Net has first.weight in torch.float64, but trained parameters are torch.float32",
    ),
    "tied by memory": (
        net(lambda self, x: self.plain(self.second(x)), tied_by_memory),
        "two parameters in the same memory, first.weight and second.weight",
    ),
    "two outputs": (net(lambda self, x: (self.plain(x), x)), "^model Net gives a tuple; it must give one tensor"),
    "changes a constant": (
        net(changes_a_constant, scale),
        "^model Net changes its buffer scale in training, which persistent=False",
    ),
    "replaces a constant": (net(replaces_a_constant, scale), "^model Net changes its buffer scale in training"),
    "no gradient": (net(lambda self, x: self.plain(x).detach()), "^model Net gives outputs without a gradient"),
    "overwrites": (net(overwrites), "^model Net writes into its input, which is the run's: take x = x - 1"),
    "seeds": (
        net(attributes=seeds),
        "^the model calls torch.manual_seed, so that all seeds would begin with the same parameters",
    ),
    "drawn by NumPy": (
        net(attributes=drawn_by_numpy),
        "^model Net draws from NumPy's global generator, .* draw with torch, whose draws come",
    ),
    "noise": (
        net(lambda self, x: self.plain(x + torch.randn_like(x) if self.training else x)),
        "^model Net draws random numbers by aten.randn_like.default, .* no form with the run's keys; use dropout",
    ),
    "rrelu": (
        net(lambda self, x: self.last(self.act(self.first(x))), lambda: {"act": nn.RReLU()}),
        "by aten.rrelu_with_noise",
    ),
    "NumPy's noise": (
        net(lambda self, x: self.plain(x + np.random.rand() if self.training else x)),  # noqa: NPY002
        "in training by other means than torch's operations, such as NumPy.*use torch's dropout",
    ),
    "draws in evaluation": (
        net(lambda self, x: nn.functional.dropout(self.plain(x), 0.5)),
        "in evaluation mode too; .*training=self.training",
    ),
    "a count": (net(counts), "^model Net keeps state outside .* a call changes its attribute calls; "),
    "a mean": (net(follows_a_mean), "a call changes its attribute seen; .* make it a floating-point buffer"),
    "a global": (
        net(lambda self, x: self.plain(x) + len(CALLS) * (CALLS.append(1) or 1)),
        "other means than torch's operations, such as NumPy, or counts its calls",
    ),
    "a part's count": (
        net(lambda self, x: self.last(self.part(x).repeat(1, 2)), lambda: {"part": net(counts)()}),
        "its attribute part.calls",
    ),
    "a whole number": (
        net(counts_in_a_buffer, norm_that_counts),
        "changes its buffer norm.(steps|num_batches_tracked), which holds no floating-point",
    ),
}


@looped("kind", REFUSED)
def test_what_cannot_be_trained_or_repeated_is_refused(kind: str) -> None:
    factory, words = REFUSED[kind]
    state = torch.get_rng_state()
    with one_line_error(words):
        built(factory)
    assert torch.equal(torch.get_rng_state(), state)


def constants() -> dict[str, Any]:
    return {"positions": nn.Buffer(torch.ones(6)), "angles": nn.Buffer(torch.ones(6), persistent=False)}


def fills_a_constant(self, x):
    """The same in every call: a table that is made when it is first needed."""
    self.scale.fill_(2.0)
    return self.plain(x / self.scale)


def held_twice() -> dict[str, Any]:
    """In a list too, and with a frozen part that is in one alone: both are what they look like."""
    first, last = nn.Linear(6, 6), nn.Linear(6, 3)
    return {"first": first, "last": last, "both": [first, last], "teacher": [nn.Linear(6, 6).requires_grad_(False)]}


@looped(
    "factory, said",
    [
        (
            net(lambda self, x: self.last(torch.tensor(np.tanh(self.first(x).detach().numpy())))),
            "model Net has no gradient of first.weight, first.bias, on random inputs",
        ),
        (
            net(lambda self, x: self.plain(x).softmax(1)),
            "model Net gives probabilities, as by softmax or sigmoid, and the loss takes",
        ),
        (net(lambda self, x: self.plain(x).sigmoid()), "model Net gives probabilities"),
        (net(lambda self, x: 0.5 + 0.1 * self.plain(x)), ""),  # between 0 and 1 by its first values alone
        (
            net(lambda self, x: self.plain(x * self.positions * self.angles), constants),
            "model Net keeps positions as it is in training, which is sent with the statistics",
        ),
        (
            net(
                lambda self, x: self.plain(self.norm(x)), lambda: {"norm": nn.BatchNorm1d(6, track_running_stats=False)}
            ),
            "model Net in evaluation: a sample's outputs depend on the other samples",
        ),
        (  # the first samples of a batch give the same whatever follows them, but not alone
            net(lambda self, x: self.plain(x - x[0])),
            "model Net in evaluation: a sample's outputs depend on the other samples",
        ),
        (
            net(lambda self, x: self.last(x).squeeze()),
            "model Net takes no batch of one sample, which a client's last batch can be: its outputs are (3,)",
        ),
        (net(lambda self, x: self.both[1](torch.relu(self.both[0](x)) + self.teacher[0](x)), held_twice), ""),
        (net(fills_a_constant, scale), ""),
    ],
)
def test_what_is_odd_is_said(factory, said: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "fedcomp"):
        built(factory)
    assert bool(caplog.records) == bool(said)
    assert said in caplog.text


def test_probabilities_are_an_ordinary_output_of_a_regression(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "fedcomp"):
        built(net(lambda self, x: self.plain(x).softmax(1)), "regression")
    assert not caplog.records


def caches(self, x):
    """And keeps its last input."""
    if not hasattr(self, "scale"):
        self.scale, self.table = torch.ones(3), {"rows": [np.arange(3.0)]}
    self.kept = x
    return self.plain(self.norm(x)) * self.scale


@looped(
    "factory",
    [
        net(caches, norm),
        net(lambda self, x: nn.functional.dropout(self.plain(self.norm(x)), 0.0, self.training), norm),
        net(
            lambda self, x: self.last(self.part(x[:, None], x[:, None], x[:, None])[0][:, 0]),
            lambda: {"part": nn.MultiheadAttention(6, 2, batch_first=True)},
        ),
        net(
            lambda self, x: self.last(self.part(x.unflatten(1, (2, 3)))[0].flatten(1)),
            lambda: {"part": nn.LSTM(3, 3, num_layers=2, batch_first=True)},
        ),
    ],
)
def test_a_module_that_draws_nothing_is_taken_with_its_statistics(factory) -> None:
    model = built(factory)
    assert isinstance(model, Functional)
    assert not model.draws_in_training
    assert all(float(buffer.sum()) in (0.0, 6.0) for buffer in model.module.buffers())
