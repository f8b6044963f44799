"""Power iteration, k-means and mean estimation against numpy, their exact bits, and the mean's standard error."""

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from fedcomp.algorithm.tasks.kmeans import KMeans
from fedcomp.algorithm.tasks.mean_estimation import MeanEstimation
from fedcomp.algorithm.tasks.power_iteration import PowerIteration
from fedcomp.compressor import Compressor
from fedcomp.dataset.tables.vectors import load
from fedcomp.model.tasks import principal_direction
from fedcomp.model.tasks.centres import Centres
from fedcomp.model.tasks.mean_vector import MeanVector
from fedcomp.model.tasks.principal_direction import PrincipalDirection
from fedcomp.random.keys import Key
from fedcomp.simulation.chunks.client_data import ClientShards
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float
from tests.conformance import world
from tests.looped import looped
from tests.parts import DENSE, Bernoulli, Codec, Dense, ErrorFeedback, RandK, Sign, Temporal, TopK, WeightedSum
from tests.refused import refused
from tests.rounds import one_round, rounds

CENTRED = partial(PrincipalDirection, centre="global")


def _matrix(sim, centred: bool) -> np.ndarray:
    """[F, F] mean of the clients' matrices, weighted by their samples, client by client."""
    x, ends = sim.dataset.train.x.double().numpy(), np.cumsum(world.SIZES)
    x = x - (x[: ends[-1]].mean(0) if centred else 0)
    parts = [x[end - size : end] for size, end in zip(world.SIZES, ends)]
    return sum(len(part) / ends[-1] * (part.T @ part) / len(part) for part in parts)


@looped("module, centred", [(PrincipalDirection, False), (CENTRED, True)])
def test_rounds_are_numpys_and_end_at_numpys_eigenvector(module, centred: bool) -> None:
    sim = world.simulation(PowerIteration(DENSE, DENSE, 3), module, world.FULL, rounds=200)
    matrix, w = _matrix(sim, centred), sim.init().theta.double().numpy()
    assert np.linalg.norm(w) == pytest.approx(1, abs=1e-6)
    assert (w >= 0).all()
    for one in rounds(sim, 3):
        w = matrix @ w
        w /= np.linalg.norm(w)
        assert one.after.theta.numpy() == pytest.approx(w, abs=1e-6)
    top = np.linalg.eigh(matrix)[1][:, -1]
    measured = sim.test_metrics(3, one.after)["test/distance"]
    assert measured == pytest.approx(1 - (w @ top) ** 2, rel=1e-4)
    assert sim.test_metrics(200, world.run(sim))["test/distance"] < 1e-11


def test_correlation_of_equal_clients_is_its_largest() -> None:
    """Seven clients with the same sample send the same vector: R2/R1 = n - 1."""
    data = world.dataset()
    same = data.train.x[:1].expand(len(data.train), -1).contiguous()
    data = type(data)("same", type(data.train)(same, data.train.y), data.test, "classification", data.num_outputs)
    sim = world.simulation(PowerIteration(DENSE, DENSE), PrincipalDirection, world.FULL, data=data, sizes=(2,) * 7)
    assert float(one_round(sim).metrics["vectors/correlation"]) == pytest.approx(6, abs=1e-4)


def test_the_eigenvector_of_many_features_is_numpys(monkeypatch) -> None:
    x = torch.randn(40, 30, generator=torch.Generator().manual_seed(1))
    top = PrincipalDirection((30,), [x]).principal
    monkeypatch.setattr(principal_direction, "ALL_BELOW", 0)
    other = PrincipalDirection((30,), [x]).principal
    assert abs(float(top @ other)) == pytest.approx(1, abs=1e-12)


test_wrong_options = refused(
    [
        (lambda: PrincipalDirection((3, 10**4, 10**4), []), "a matrix of 300000000 x 300000000 numbers; that takes"),
        (lambda: PowerIteration(DENSE, DENSE, 0), "algorithm.batch_size=0 must be a whole number, 1 or more"),
        (lambda: KMeans(DENSE, DENSE, 0), "algorithm.batch_size=0 must be a whole number, 1 or more"),
    ]
)


K, F = 3, world.NUM_FEATURES
THREE = partial(Centres, num_clusters=K)


def _lloyd(points: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, float]:
    """The centres after one step, and the objective before it."""
    distances = ((points[:, None] - centres[None]) ** 2).sum(2)
    nearest = distances.argmin(1)
    held = [points[nearest == k] for k in range(len(centres))]
    moved = np.stack([part.mean(0) if len(part) else centre for part, centre in zip(held, centres)])
    return moved, float(distances.min(1).mean())


def _kmeans(downlink=DENSE, **options):
    return world.simulation(KMeans(DENSE, downlink, 4), THREE, **{"participation": world.FULL} | options)


def test_dense_rounds_are_plain_lloyd_and_the_objective_never_rises() -> None:
    sim = _kmeans()
    points = sim.dataset.train.x[: sum(world.SIZES)].double().numpy()
    objectives = []
    for one in list(rounds(sim, 8))[1:]:
        wanted, objective = _lloyd(points, one.before.theta.view(K, F).double().numpy())
        assert one.after.theta.view(K, F).numpy() == pytest.approx(wanted, abs=1e-5)
        assert float(one.metrics["train/objective"]) == pytest.approx(objective, rel=1e-5)
        objectives.append(objective)
    assert all(later <= earlier * (1 + 1e-6) for earlier, later in pairwise(objectives))
    assert objectives[-1] < objectives[0]


def test_centres_are_means_of_the_cohorts_points_whatever_its_weights() -> None:
    sim, parts = _kmeans(participation=Bernoulli(0.5)), world.dataset().train.x.double().split(world.SIZES)
    for one in rounds(sim, 6):
        if one.cohort.size and one.before.started:
            points = torch.cat([parts[client] for client in one.cohort.clients]).numpy()
            wanted, _ = _lloyd(points, one.before.theta.view(K, F).double().numpy())
            assert one.after.theta.view(K, F).numpy() == pytest.approx(wanted, abs=1e-5)


def test_test_objective_is_the_mean_squared_distance_to_the_nearest() -> None:
    sim = _kmeans()
    state = world.run(sim)
    wanted = _lloyd(sim.dataset.test.x.double().numpy(), state.theta.view(K, F).double().numpy())[1]
    assert sim.test_metrics(4, state)["test/objective"] == pytest.approx(wanted, rel=1e-5)


def test_the_first_centres_are_points_of_different_clients() -> None:
    """A single round from far-away data: each centre is the mean of the points nearest to one of the picked points."""
    context = {}

    class Peek(KMeans):
        def _first_centres(self, first, num_clusters, cohort, ctx):
            context["centres"] = super()._first_centres(first, num_clusters, cohort, ctx)
            return context["centres"]

    sim = replace(_kmeans(), algorithm=Peek(DENSE, DENSE, 4))
    state = one_round(sim).after
    picked, points = context["centres"].view(K, F), sim.dataset.train.x[: sum(world.SIZES)]
    places = [int((points == centre).all(1).nonzero()[0]) for centre in picked]
    ends = np.cumsum(world.SIZES)
    assert len({int(np.searchsorted(ends, place, side="right")) for place in places}) == K
    assert state.theta.view(K, F).numpy() == pytest.approx(_lloyd(points.numpy(), picked.numpy())[0], abs=1e-5)


@looped("downlink", [Dense(), Sign()])
def test_bits_of_every_exchange(downlink) -> None:
    """Participation is such that some first rounds are empty: the first centres are counted when they are sent."""
    sim = _kmeans(downlink=Compressor(downlink), participation=Bernoulli(0.12), rounds=40)
    sizes = []
    for index, one in enumerate(rounds(sim)):
        m, first = one.cohort.size, bool(one.cohort.size) and not any(sizes)
        sizes.append(m)
        lossy = not downlink.near_lossless
        up = m * (32 * K + 32 * K * F) + first * 32 * K * F
        once = (32 * K + (K * F + 32 * K if lossy else 32 * K * F) + first * lossy * 32 * K * F) * (m > 0)
        down = m * 32 * K + (m > 0) * (
            world.NUM_CLIENTS * (K * F + 32 * K + first * 32 * K * F) if lossy else m * 32 * K * F
        )
        assert (one.bits["uplink"], one.bits["downlink"], one.bits["broadcast"]) == (up, down, once), index
        counts, scale = 32 * K * (m > 0), 32 * K * lossy * (m > 0)  # which the papers do not count
        paper = (up - m * counts, down - m * counts - world.NUM_CLIENTS * scale, once - counts - scale)
        assert tuple(one.bits[f"paper/{link}"] for link in ("uplink", "downlink", "broadcast")) == paper, index
    assert sizes[0] == 0
    assert max(sizes) > 1


def test_a_cluster_without_points_keeps_its_centre() -> None:
    sim = _kmeans()
    state = world.run(sim, last=1)
    far = state.theta.view(K, F).clone()
    far[0], far[1] = far[0] + 0.5, 1e3
    after = one_round(sim, replace(state, theta=far.flatten()), 1).after
    assert torch.equal(after.theta.view(K, F)[1], far[1])
    assert not torch.equal(after.theta.view(K, F)[0], far[0])


N, D = 10, 100


@dataclass(frozen=True)
class Noisy(Codec):
    """Adds independent standard normal noise: the mean's squared error is chi-squared, with mean d/n."""

    unbiased = True

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        return Payload({"values": Field(x + sender_key.normal(common.ids, common.dim), Float())})

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        return payload.fields["values"].data


@dataclass(frozen=True)
class Stated(WeightedSum):
    """States its error, as an estimator may."""

    def expected_error(self, codec, x: Tensor) -> Tensor | None:
        assert x.shape == (N, D)
        return torch.tensor(D / N) if isinstance(codec, Noisy) else None


def _simulation(algorithm: MeanEstimation, columns: int = 50, rounds: int = 5) -> Simulation:
    dataset, cpu = load(num=N, dim=D, columns=columns), torch.device("cpu")
    shards = ClientShards.of([torch.tensor([client]) for client in range(N)], cpu)
    model = MeanVector(dataset.input_shape, dataset.inputs(dataset.train))
    return Simulation(algorithm, dataset, shards, model, world.FULL, Key(("run", 0)), rounds, 100)


def _run(sim: Simulation):
    *_, last = rounds(sim)
    return last.after, {name: float(value.mean()) for name, value in last.metrics.items()}


def test_mse_is_the_expected_one_within_its_standard_error() -> None:
    rounds = 400
    _, metrics = _run(_simulation(MeanEstimation(Compressor(Noisy(), estimator=Stated())), rounds=rounds))
    expected, error = D / N, (2 / D / rounds) ** 0.5 * D / N  # variance of chi-squared: 2 d (1/n)^2
    assert abs(metrics["mse"] - expected) < 5 * error
    assert metrics["mse/error"] == pytest.approx(error, rel=0.2)  # 400 draws give it within 1/sqrt(800) = 3.5 %
    assert metrics["mse/closed_form"] == D / N


def test_temporal_memory_makes_later_rounds_exact() -> None:
    """Static vectors: once every entry has been sent, what the server remembers is the vector itself."""
    algorithm = MeanEstimation(Compressor(RandK(0.5), estimator=Temporal()), "keep")
    sim = _simulation(algorithm, rounds=30)  # an entry is still unsent with probability 2^-30
    state, _ = _run(sim)
    assert sim.test_metrics(30, state)["test/error"] < 1e-10
    reset = _simulation(MeanEstimation(algorithm.uplink, "reset"), rounds=30)
    assert reset.test_metrics(30, _run(reset)[0])["test/error"] > 0.01


@looped("columns", [0, 30, 100])
def test_a_lossless_estimate_has_no_error(columns: int) -> None:
    sim = _simulation(MeanEstimation(Compressor(Dense(), estimator=Stated())), columns)
    state, metrics = _run(sim)
    assert metrics["mse"] < 1e-12
    assert "mse/closed_form" not in metrics
    assert metrics["vectors/correlation"] == pytest.approx(columns / 10 - 1, abs=1e-5)
    assert sim.test_metrics(5, state)["test/error"] < 1e-12
    wanted = torch.cat((torch.full((columns,), 0.1), torch.zeros(D - columns)))
    assert torch.allclose(state.theta, wanted, atol=1e-7)


def test_memory_is_reset_or_kept() -> None:
    """With error feedback a second round differs from the first; reset, every round is the first one again."""
    uplink = Compressor(TopK(0.1, "index"), ErrorFeedback())
    reset, kept = (_simulation(MeanEstimation(uplink, memory), rounds=3) for memory in ("reset", "keep"))
    once, _ = _run(_simulation(MeanEstimation(uplink), rounds=1))
    last, _ = _run(reset)
    assert torch.equal(last.theta, once.theta)
    assert not last.uplink.sender.any()
    other, metrics = _run(kept)
    assert not torch.equal(other.theta, once.theta)
    assert other.uplink.sender.any()
    assert other.errors[0] == 3
    assert metrics["mse"] == pytest.approx(float(other.errors[1] / 3))
