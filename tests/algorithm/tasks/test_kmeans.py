"""Lloyd's algorithm against numpy, the exact bits of its exchanges, and what never rises."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch

from fedcomp.algorithm.tasks.kmeans import KMeans
from fedcomp.model.tasks.centres import Centres
from fedcomp.wire import Ledger
from tests.conformance import world
from tests.parts import DENSE, Bernoulli, Compressor, Dense, Sign

K, F = 3, world.NUM_FEATURES
THREE = partial(Centres, num_clusters=K)


def _lloyd(points: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, float]:
    """The centres after one step, and the objective before it."""
    distances = ((points[:, None] - centres[None]) ** 2).sum(2)
    nearest = distances.argmin(1)
    held = [points[nearest == k] for k in range(len(centres))]
    moved = np.stack([part.mean(0) if len(part) else centre for part, centre in zip(held, centres)])
    return moved, float(distances.min(1).mean())


def _simulation(uplink=DENSE, downlink=DENSE, **options):
    return world.simulation(KMeans(uplink, downlink, 4), THREE, **{"participation": world.FULL} | options)


def test_dense_rounds_are_plain_lloyd_and_the_objective_never_rises() -> None:
    sim = _simulation()
    points = sim.dataset.train.x[: sum(world.SIZES)].double().numpy()
    state, _ = sim.round(0, sim.init(), Ledger())
    objectives = []
    for index in range(1, 8):
        wanted, objective = _lloyd(points, state.theta.view(K, F).double().numpy())
        state, result = sim.round(index, state, Ledger())
        assert state.theta.view(K, F).numpy() == pytest.approx(wanted, abs=1e-5)
        assert float(result.metrics["train/objective"]) == pytest.approx(objective, rel=1e-5)
        objectives.append(objective)
    assert all(later <= earlier * (1 + 1e-6) for earlier, later in pairwise(objectives))
    assert objectives[-1] < objectives[0]


def test_test_objective_is_the_mean_squared_distance_to_the_nearest() -> None:
    sim = _simulation()
    state = world.run(sim)
    wanted = _lloyd(sim.dataset.test.x.double().numpy(), state.theta.view(K, F).double().numpy())[1]
    assert sim.test_metrics(4, state)["test/objective"] == pytest.approx(wanted, rel=1e-5)


def test_the_first_centres_are_points_of_different_clients() -> None:
    """A single round from far-away data: each centre is the mean of the points nearest to one of the picked points."""
    sim = _simulation()
    context = {}

    class Peek(KMeans):
        def _first_centres(self, first, num_clusters, cohort, ctx):
            context["centres"] = super()._first_centres(first, num_clusters, cohort, ctx)
            return context["centres"]

    sim = replace(sim, algorithm=Peek(DENSE, DENSE, 4))
    state, _ = sim.round(0, sim.init(), Ledger())
    picked, points = context["centres"].view(K, F), sim.dataset.train.x[: sum(world.SIZES)]
    places = [int((points == centre).all(1).nonzero()[0]) for centre in picked]
    ends = np.cumsum(world.SIZES)
    assert len({int(np.searchsorted(ends, place, side="right")) for place in places}) == K
    assert state.theta.view(K, F).numpy() == pytest.approx(_lloyd(points.numpy(), picked.numpy())[0], abs=1e-5)


@pytest.mark.parametrize("downlink", [Dense(), Sign()], ids=["dense", "sign"])
def test_bits_of_every_exchange(downlink) -> None:
    """Participation is such that some first rounds are empty: the first centres are counted when they are sent."""
    sim = _simulation(downlink=Compressor(downlink), participation=Bernoulli(0.12), rounds=40)
    state, started, sizes = sim.init(), False, []
    for index in range(40):
        ledger = Ledger()
        state, result = sim.round(index, state, ledger)
        m, first = result.cohort.size, bool(result.cohort.size) and not started
        sizes.append(m)
        started = started or m > 0
        lossy = not downlink.near_lossless
        up = m * (32 * K + 32 * K * F) + first * 32 * K * F
        once = (32 * K + (K * F + 32 * K if lossy else 32 * K * F) + first * lossy * 32 * K * F) * (m > 0)
        down = m * 32 * K + (m > 0) * (
            world.NUM_CLIENTS * (K * F + 32 * K + first * 32 * K * F) if lossy else m * 32 * K * F
        )
        counters = ledger.counters()
        assert (counters["uplink"], counters["downlink"], counters["broadcast"]) == (up, down, once), index
        counts, scale = 32 * K * (m > 0), 32 * K * lossy * (m > 0)  # which the papers do not count
        paper = (up - m * counts, down - m * counts - world.NUM_CLIENTS * scale, once - counts - scale)
        assert (counters["paper/uplink"], counters["paper/downlink"], counters["paper/broadcast"]) == paper, index
    assert sizes[0] == 0
    assert max(sizes) > 1


def test_a_cluster_without_points_keeps_its_centre() -> None:
    sim = _simulation()
    state = world.run(sim, last=1)
    far = state.theta.view(K, F).clone()
    far[0], far[1] = far[0] + 0.5, 1e3
    after, _ = sim.round(1, replace(state, theta=far.flatten()), Ledger())
    assert torch.equal(after.theta.view(K, F)[1], far[1])
    assert not torch.equal(after.theta.view(K, F)[0], far[0])


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"algorithm.batch_size=0 must be a whole number, 1 or more"):
        KMeans(DENSE, DENSE, 0)
    with pytest.raises(ValueError, match=r"model.num_clusters=0 must be a whole number"):
        Centres((2,), 0)
