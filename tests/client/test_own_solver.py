"""What a local solver of one's own must be."""

import torch
from omegaconf import OmegaConf

from fedcomp.client.contract import LocalLoop
from fedcomp.client.solver import step_by_step
from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from tests.client.test_kinds import Own
from tests.looped import looped
from tests.refused import one_line_error


class Lists(Own):
    """It says how many samples a step has, and not what a `Batching` is."""

    @property
    def batching(self):
        return [self.batch_size]


class Runs(Own):
    """Its `run` leaves out the algorithm's correction of the gradients."""

    def run(self, data, theta, stats, progress, grad_fn=None, memory=()):
        return step_by_step(LocalLoop(self, data, theta, stats, self.lr, None))


@looped(
    "kind, words",
    [
        (Lists, "batching is a list, but must be a property that returns a Batching"),
        (Runs, "run is the same for all solvers, .*: override `gradients`"),
    ],
)
def test_what_is_no_solver_is_one_line(kind: type, words: str) -> None:
    config = compose(["num_clients=2", "rounds=1"])
    config.client = OmegaConf.create({"_target_": f"{__name__}.{kind.__name__}", "lr": 0.1, "batch_size": 10})
    with one_line_error(f"^client=test_own_solver: {words}"):
        build_simulation(config, torch.device("cpu"))
