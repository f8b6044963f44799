"""What the properties and methods of a local solver of one's own must return."""

import torch
from omegaconf import OmegaConf

from fedcomp.client import LocalResult
from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from tests.client.linear_regression import START, agents, run
from tests.client.test_kinds import Own
from tests.looped import looped
from tests.refused import one_line_error


class Lists(Own):
    """It says how many samples a step has, and not what a `Batching` is."""

    @property
    def batching(self):
        return [self.batch_size]


def test_a_batching_that_is_none_is_one_line() -> None:
    config = compose(["num_clients=2", "rounds=1"])
    config.client = OmegaConf.create({"_target_": f"{__name__}.Lists", "lr": 0.1, "batch_size": 10})
    with one_line_error("^client=test_own_solver: batching is a list, but must be a property that returns a Batching"):
        build_simulation(config, torch.device("cpu"))


class Returns(Own):
    """Its `run` returns what a test asks for."""

    what: object = None

    def run(self, data, theta, stats, progress, grad_fn=None, memory=()):
        return type(self).what


@looped(
    "what, words",
    [
        (START, "run returned a Tensor, but must return LocalResult"),
        (LocalResult(START, torch.zeros(4, 0), torch.zeros(4)), r"run returned as value \(\d+,\), but must return a"),
        (LocalResult(START.expand(4, -1), None, torch.zeros(4)), "run returned as stats a NoneType, but must"),
        (LocalResult(START.expand(4, -1), torch.zeros(4, 0), torch.zeros(())), r"loss \(\), but .* a tensor \(4,\)"),
    ],
)
def test_a_run_that_returns_something_else_is_one_line(what: object, words: str) -> None:
    Returns.what = what
    with one_line_error(f"^client=test_own_solver: .*{words}"):
        run(Returns(lr=0.1), agents())


def test_what_a_run_of_ones_own_returns_is_left_as_it_is() -> None:
    Returns.what = LocalResult(START.expand(4, -1), torch.zeros(4, 0), torch.zeros(4))
    assert run(Returns(lr=0.1), agents()) is Returns.what.value
