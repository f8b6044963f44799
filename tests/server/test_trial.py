"""A server optimizer of the user's own is tried before the first round: what is refused, and what is said."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
import torch

from fedcomp.server import ServerOptimizer
from fedcomp.server.trial import tried
from tests.looped import looped
from tests.refused import one_line_error


@dataclass(frozen=True)
class Own(ServerOptimizer):
    """Steps as a test says."""

    made: Callable[..., Any]
    first: Any = (torch.zeros(4),)

    def init(self, theta):
        return self.first

    def step(self, update, slots, theta):
        return self.made(update, slots)


def momentum(update, slots):
    velocity = slots[0] * 0.5 + update
    return velocity, (velocity,)


numbers = count()


@looped(
    "made, words",
    [
        (lambda update, slots: update, r"server=test_trial: step returned a Tensor, but must return \(step, slots\)"),
        (lambda update, slots: (update.mean(), slots), r"a step is torch.float32 \(\), but must be float32 \[D\]"),
        (lambda update, slots: (update[:1], slots), r"a step is torch.float32 \(1,\), but must be"),
        (lambda update, slots: (update.double(), slots), "a step is torch.float64"),
        (
            lambda update, slots: (update, (*slots, update)),
            r"the memory is \[torch.float32 \(4,\)\] before step 1 and \[torch.float32 \(4,\), torch.*after it",
        ),
        (lambda update, slots: (update, list(slots)), "before step 1 and a list after it, but it is a tuple"),
        (lambda update, slots: (update / slots[0], slots), r"step 1 is \[inf, -inf, inf, inf\] for the update \[0.1"),
        (lambda update, slots: (update.mul_(2), slots), "step writes into the tensors that it is given"),
        (lambda update, slots: (update, (slots[0].add_(update),)), "step writes into the tensors that it is given"),
        (
            lambda update, slots: (update * next(numbers), slots),
            "step gives another step for the same update, slots and theta",
        ),
    ],
)
def test_a_step_that_is_none_is_refused(made, words: str) -> None:
    with one_line_error(words):
        tried(Own(made))


class Moved(Own):
    """Its step is made of the model, as a decay of the weights needs it."""

    def step(self, update, slots, theta):
        return self.made(update, theta), slots


def test_a_step_that_is_the_model_is_refused() -> None:
    tried(Moved(lambda update, theta: update - 0.01 * theta))
    with one_line_error("server=test_trial: step returned the model after the step, but must return what is added"):
        tried(Moved(lambda update, theta: theta + update))
    with one_line_error("server=test_trial: step writes into the tensors that it is given"):
        tried(Moved(lambda update, theta: theta.add_(1)))


class Blind(Own):
    """Does not take the model."""

    def step(self, update, slots):
        return update, slots


def test_a_step_that_takes_no_model_is_refused() -> None:
    with one_line_error(r"server=test_trial: step must take \(update, slots, theta\): too many positional arguments"):
        tried(Blind(momentum))


def test_a_memory_of_no_tensors_is_refused() -> None:
    with one_line_error("init must return a tuple of tensors, its memory"):
        tried(Own(momentum, [0.0]))


class Zeroed(Own):
    """Makes its first memory of the model itself."""

    def init(self, theta):
        return (theta.zero_(),)


def test_a_first_memory_that_writes_into_the_model_is_refused() -> None:
    with one_line_error("server=test_trial: init writes into the model, with which the run begins"):
        tried(Zeroed(momentum))


@looped(
    "made, first, words",
    [
        (momentum, (torch.zeros(4),), ""),
        (lambda update, slots: (update, slots), (), ""),
        (lambda update, slots: (momentum(update, slots)[0], slots), (torch.zeros(4),), "so that it remembers nothing"),
        (lambda update, slots: (-update, slots), (), "server=test_trial steps against the mean update, which is added"),
    ],
)
def test_what_is_odd_is_said(made, first, words: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "fedcomp"):
        tried(Own(made, first))
    assert bool(caplog.records) == bool(words)
    assert words in caplog.text
