"""Rows of a state that is given up are overwritten where they lie, with the same values as without."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Setup
from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import flatten, put_rows, take_rows
from fedcomp.simulation.monte_carlo.study import MonteCarloStudy, repetition_key
from fedcomp.wire import Ledger
from tests.conformance import world
from tests.parts import Compressor, Dense, ErrorFeedback, FedAvg, ServerSgd, Sgd, TopK

FEEDBACK = FedAvg(Sgd(lr=0.1, steps=1), ServerSgd(), Compressor(TopK(0.2), ErrorFeedback()), Compressor(Dense()))


@dataclass(frozen=True)
class CountsState:
    theta: Tensor
    rounds: Tensor
    twice: Tensor


@dataclass(frozen=True)
class Counts(Algorithm):
    """Counts each client's rounds by 1 and by 2, from the same zeros."""

    weights = "uniform"

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> CountsState:
        zeros = torch.zeros(setup.num_clients, 2)
        return CountsState(theta, zeros, zeros)

    def round(self, state: CountsState, cohort: Cohort, ctx: Context):
        rounds = put_rows(state.rounds, cohort, take_rows(state.rounds, cohort) + 1)
        return CountsState(
            state.theta + 1, rounds, put_rows(state.twice, cohort, take_rows(state.twice, cohort) + 2)
        ), {}


@pytest.mark.parametrize("study", [False, True], ids=["one", "study"])
@pytest.mark.parametrize("algorithm", [FEEDBACK, Counts()], ids=["feedback", "one tensor in two fields"])
def test_a_state_that_is_given_up_stays_where_it_was(algorithm: Algorithm, study: bool) -> None:
    sim = world.simulation(algorithm)
    runner = (
        MonteCarloStudy(tuple(replace(sim, key=repetition_key(sim.key, number)) for number in range(3)))
        if study
        else sim
    )
    kept, given, places = runner.init(), runner.init(), set[tuple[int, ...]]()
    for index in range(4):
        kept, _ = runner.round(index, kept, Ledger())
        given, _ = runner.round(index, given, Ledger(), donate_state=True)
        rows = [tensor for tensor in flatten(given).values() if tensor.dim() > 1 and tensor.numel()]
        places |= {tuple(tensor.data_ptr() for tensor in rows)} if index else set()
    assert all(torch.equal(tensor, flatten(kept)[name]) for name, tensor in flatten(given).items())
    assert len(places) == 1
