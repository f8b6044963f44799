"""Rows of a state that is given up are changed in place, and only where nobody else could notice."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Models, Setup
from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.client.sgd import Sgd
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.feedback import ErrorFeedback
from fedcomp.compressor.sparsifiers.topk import TopK
from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import flatten, put_rows, take_rows
from fedcomp.core.row_update import RowUpdate, apply_row_updates
from fedcomp.server.sgd import Sgd as ServerSgd
from fedcomp.simulation.monte_carlo.study import MonteCarloStudy, repetition_key
from fedcomp.wire import Ledger
from tests.conformance import world

SOME = replace(Cohort.of([1, 3], torch.ones(2)), state_donated=True)
NEW = torch.full((2, 2), -1.0)


def _rows() -> Tensor:
    return torch.arange(8.0).view(4, 2)


def _changed() -> Tensor:
    return _rows().index_copy(0, SOME.ids, NEW)


def test_the_change_is_made_in_place_when_the_round_is_over() -> None:
    rows = _rows()
    update = put_rows(rows, SOME, NEW)
    assert torch.equal(rows, _rows())
    assert torch.equal(take_rows(update, SOME), NEW)  # the cohort's own rows can be looked at
    after = apply_row_updates({"rows": rows}, {"rows": update})["rows"]
    assert after is rows
    assert torch.equal(rows, _changed())


def test_whoever_reads_the_change_before_sees_it_and_the_old_rows_stay() -> None:
    rows = _rows()
    update = put_rows(rows, SOME, NEW)
    assert torch.equal(update + 0, _changed())
    assert torch.equal(take_rows(update, replace(SOME, ids=torch.tensor([0, 3]))), _changed()[[0, 3]])
    assert torch.equal(torch.stack([update, update])[1], _changed())
    assert (update.numpy() == _changed().numpy()).all()
    assert type(update.sum()) is Tensor
    assert torch.equal(put_rows(update, SOME, 2 * NEW), _rows().index_copy(0, SOME.ids, 2 * NEW))
    assert torch.equal(apply_row_updates({"rows": rows}, {"rows": update})["rows"], _changed())
    assert torch.equal(rows, _rows())


@pytest.mark.parametrize("holder", ["old state", "new state", "another update", "metric", "nobody's", "repeated row"])
def test_rows_that_somebody_else_holds_stay(holder: str) -> None:
    rows = torch.zeros(1, 2).expand(4, 2) if holder == "repeated row" else _rows()
    before = rows.clone()
    update = put_rows(rows, SOME, NEW)
    assert isinstance(update, RowUpdate)
    old = {} if holder == "nobody's" else {"rows": rows}
    new = {"rows": update}
    old |= {"other": rows[0]} if holder == "old state" else {}
    new |= {"other": rows[1:]} if holder == "new state" else {}
    new |= {"other": put_rows(rows, SOME, 2 * NEW)} if holder == "another update" else {}
    after = apply_row_updates(old, new, [rows[:, 0]] if holder == "metric" else [])
    assert torch.equal(after["rows"], before.index_copy(0, SOME.ids, NEW))
    assert torch.equal(rows, before)
    assert not any(isinstance(tensor, RowUpdate) for tensor in after.values())


def _feedback() -> FedAvg:
    return FedAvg(Sgd(lr=0.1, steps=1), ServerSgd(), Compressor(TopK(0.2), ErrorFeedback()), Compressor(Dense()))


def test_a_round_of_some_clients_leaves_a_memory_where_it_was() -> None:
    sim = world.simulation(_feedback())
    state = sim.init()
    place = state.uplink.sender.data_ptr()
    for index in range(3):
        state, _ = sim.round(index, state, Ledger(), donate_state=True)
        assert state.uplink.sender.data_ptr() == place
    assert torch.equal(state.uplink.sender, world.run(sim, last=3).uplink.sender)


@dataclass(frozen=True)
class SwapState:
    theta: Tensor
    now: Tensor
    before: Tensor


@dataclass(frozen=True)
class Swap(Algorithm):
    """Keeps each client's number of rounds, and that before the round."""

    weights = "uniform"

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> SwapState:
        return SwapState(theta, torch.zeros(setup.num_clients, 2), torch.zeros(setup.num_clients, 2))

    def round(self, state: SwapState, cohort: Cohort, ctx: Context):
        now = put_rows(state.now, cohort, take_rows(state.now, cohort) + 1)
        return SwapState(state.theta + 1, now, state.now), {}

    def evaluation_models(self, state: SwapState, key: object) -> dict[str, Models]:
        return {}


@pytest.mark.parametrize("algorithm", [_feedback(), Swap()], ids=["feedback", "swap"])
def test_repetitions_one_after_another_write_over_the_state_that_is_given_up(algorithm) -> None:
    first = world.simulation(algorithm)
    study = MonteCarloStudy(tuple(replace(first, key=repetition_key(first.key, number)) for number in range(3)))
    kept, given = study.init(), study.init()
    places = [tensor.data_ptr() for tensor in flatten(given).values()]
    for index in range(4):
        kept, _ = study.round(index, kept, Ledger())
        given, _ = study.round(index, given, Ledger(), donate_state=True)
    assert all(torch.equal(tensor, flatten(kept)[name]) for name, tensor in flatten(given).items())
    assert [tensor.data_ptr() for tensor in flatten(given).values()] == places
