"""What a recorder keeps: loops and pieces up to a number, and room for cohorts of any size."""

import pytest
import torch

from fedcomp.client.sgd import Sgd
from fedcomp.participation.bernoulli import Bernoulli
from fedcomp.simulation.cuda_graphs import graphed_loop as recorded
from fedcomp.simulation.cuda_graphs.graphed_loop import MOST_LOOPS, GraphedLoops
from fedcomp.simulation.cuda_graphs.static_step import StaticBuffers, room
from tests.conformance import world
from tests.simulation.cuda_graphs.strict_capture import StrictCapture
from tests.simulation.cuda_graphs.test_graphed_loop import ALIKE, PLAIN, Double, states


def test_loops_are_recorded_once_and_kept_up_to_a_number() -> None:
    capture = StrictCapture()
    recorder = GraphedLoops(capture)
    solvers = [Sgd(lr=0.1, batch_size=10, momentum=0.1 * index) for index in range(MOST_LOOPS + 1)]
    twin = Double(world.mlp, ALIKE)
    for solver in solvers:
        for index in range(3):
            twin.run(solver, recorder, index)
    assert (capture.recorded, capture.replays) == (MOST_LOOPS + 1, 2 * MOST_LOOPS + 2)
    twin.run(solvers[-1], recorder, 2)
    assert capture.recorded == MOST_LOOPS + 1
    twin.run(solvers[0], recorder, 2)
    twin.run(solvers[0], recorder, 2)
    assert capture.recorded == MOST_LOOPS + 2


def test_pieces_are_kept_up_to_a_number(monkeypatch) -> None:
    monkeypatch.setattr(recorded, "MOST_GRAPHS", 1)
    capture, twin = StrictCapture(), Double(world.mlp, ALIKE)
    recorder, solver = GraphedLoops(capture), Sgd(lr=0.1, batch_size=4, epochs=3)  # pieces of 4 and 2 steps
    for index in range(3):
        fast, slow = twin.run(solver, recorder, index), twin.run(solver, None, index)
        assert torch.equal(fast.value, slow.value)
    assert capture.recorded == 0, "the other piece had dropped each before it came again"


@pytest.mark.parametrize("name", ["sgd", "adam", "fedmrn", "fedpm"])
def test_cohorts_of_any_size_share_a_loop(name, monkeypatch) -> None:
    """Its buffers grow with the largest cohort, and a piece is recorded when its like comes again."""
    made = []
    like = StaticBuffers.like.__func__
    monkeypatch.setattr(StaticBuffers, "like", classmethod(lambda cls, *given: made.append(1) or like(cls, *given)))
    capture, rounds = StrictCapture(), 24
    plain, repeated = (
        states(PLAIN[name], world.mlp, ALIKE, one, rounds=rounds, participation=Bernoulli(0.6))
        for one in (None, GraphedLoops(capture))
    )
    assert all(torch.equal(plain[part], repeated[part]) for part in plain)
    assert len(made) <= 3
    assert 0 < capture.recorded <= len(ALIKE) * 3
    assert capture.replays > rounds / 2


def test_room() -> None:
    assert [room(num) for num in (1, 7, 8, 15, 16, 17, 31, 33, 100, 1000)] == [1, 7, 8, 15, 16, 18, 32, 36, 104, 1024]
    assert all(num <= room(num) <= 1.125 * num for num in range(8, 2000))
