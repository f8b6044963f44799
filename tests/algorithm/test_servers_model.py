"""The model that a server optimiser is given is the one that its step is added to, whatever messages made of it."""

from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor

from fedcomp.algorithm.updates.local_models import LocalModels
from fedcomp.server import ServerOptimizer
from fedcomp.server.adamw import AdamW
from fedcomp.server.contract import Slots
from tests.algorithm.conformance_cases import CASES
from tests.conformance import world
from tests.conformance.algorithm import AlgorithmCase
from tests.parts import DENSE, Compressor, FedAvg, Sgd, Sign
from tests.rounds import rounds


@dataclass(frozen=True)
class Seen(ServerOptimizer):
    """Steps with the update itself, and keeps the models that it was given."""

    models: list[Tensor] = field(default_factory=list)

    def init(self, theta: Tensor) -> Slots:
        return ()

    def step(self, update: Tensor, slots: Slots, theta: Tensor) -> tuple[Tensor, Slots]:
        self.models.append(theta.clone())
        return update, slots


def _lossy(case: AlgorithmCase) -> bool:
    return getattr(case.algorithm, "downlink", DENSE) != DENSE


STEPPING = {
    type(case.algorithm): case
    for case in sorted(CASES, key=_lossy)
    if isinstance(getattr(case.algorithm, "server", None), ServerOptimizer)
    and not isinstance(case.algorithm, LocalModels)  # whose server has lr alone
}
"""A case of each class of methods, with lossy messages down where there is one."""


@pytest.mark.parametrize("case", STEPPING.values(), ids=lambda case: case.name)
def test_a_step_begins_at_the_model(case: AlgorithmCase) -> None:
    """All of it, or a fragment."""
    seen = Seen()
    sim = replace(case.simulation(rounds=3), algorithm=replace(case.algorithm, server=seen))  # type: ignore[call-arg]
    befores = [one.before.theta for one in rounds(sim)]
    assert seen.models
    for before, given in zip(befores[-len(seen.models) :], seen.models, strict=True):
        whole = given.shape == before.shape
        assert torch.equal(given, before) if whole else bool(torch.isin(given, before).all())


def test_what_decays_is_the_model_that_lossy_steps_made() -> None:
    """With updates of almost 0, AdamW's step is -lr w theta, and the sign of it is all that is sent."""
    server = AdamW(lr=0.1, weight_decay=0.5, eps=1e3)
    method = FedAvg(Sgd(lr=1e-6, batch_size=4), server, DENSE, Compressor(Sign()), sends="step")
    for one in rounds(world.simulation(method, rounds=8)):
        moved = one.after.theta - one.before.theta
        assert torch.equal(moved.sign(), -one.before.theta.sign())
