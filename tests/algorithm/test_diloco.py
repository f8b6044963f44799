"""DiLoCo is FedAvg with AdamW, whose moments stay with the clients, and Nesterov's momentum at the server."""

from dataclasses import replace

import pytest
import torch

from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from fedcomp.core.pytree import flatten
from tests.algorithm.heterogeneous import N, Run, problem
from tests.parts import DENSE, GD, Adam, FedAvg, ServerSgd

CLIENTS = problem(0)
ADAMW = Adam(lr=0.05, steps=6, weight_decay=0.3, decoupled=True)
ALIKE = replace(CLIENTS, hessians=CLIENTS.hessians[:1].expand(N, -1, -1), centres=CLIENTS.centres[:1].expand(N, -1))


def _diloco(client: Adam, persist: bool) -> FedAvg:
    return FedAvg(client, ServerSgd(), DENSE, DENSE, "uniform", persist_optimizer=persist)


def test_two_rounds_of_alike_clients_are_one_training_of_twice_the_steps() -> None:
    """With an outer rate of 1 and no momentum; without the clients' moments it is another."""
    *_, whole = Run(_diloco(replace(ADAMW, steps=12), False), ALIKE).states(1)
    *_, kept = Run(_diloco(ADAMW, True), ALIKE).states(2)
    *_, fresh = Run(_diloco(ADAMW, False), ALIKE).states(2)
    assert torch.allclose(kept.theta, whole.theta, rtol=0, atol=1e-5)
    assert not torch.allclose(fresh.theta, whole.theta, rtol=0, atol=1e-2)


def test_moments_of_absent_clients_stay_and_steps_are_counted() -> None:
    run = Run(_diloco(ADAMW, True), CLIENTS, 3)
    state, met = run.init(), torch.zeros(N, dtype=torch.int64)
    for index in range(4):
        before, state = state, run.once(state, index)
        present = torch.zeros(N, dtype=torch.bool)
        present[run.cohort(index).ids] = True
        met += present
        for old, new in zip(before.local, state.local, strict=True):
            assert torch.equal(old[~present], new[~present])
    assert state.local[-1][:, 0].tolist() == (6 * met).tolist()


def test_without_moments_the_state_is_as_before() -> None:
    assert not any(name.startswith("local") for name in flatten(Run(_diloco(ADAMW, False), CLIENTS).init()))


def test_wrong_input() -> None:
    with pytest.raises(ValueError, match="persist_optimizer=true makes no sense for client=gd, which cannot go on"):
        FedAvg(GD(lr=0.1), ServerSgd(), DENSE, DENSE, persist_optimizer=True)


def test_the_choices_are_diloco() -> None:
    config = compose(["client=adamw", "server=nesterov", "algorithm.persist_optimizer=true"])
    simulation, _ = build_simulation(config, torch.device("cpu"))
    assert simulation.algorithm == FedAvg(
        Adam(lr=0.0004, weight_decay=0.1, decoupled=True),
        ServerSgd(0.7, 0.9, nesterov=True),
        DENSE,
        DENSE,
        persist_optimizer=True,
    )
