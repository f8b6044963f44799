"""FedPM: aggregation, gradients straight through the mask, frozen weights, bits."""

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedcomp.algorithm.bicompfl.bicompfl_gr import BiCompFLGR
from fedcomp.algorithm.contract import Algorithm, Setup
from fedcomp.algorithm.fedmrn import FedMRN
from fedcomp.algorithm.fedpm import FedPM
from fedcomp.algorithm.masks.frozen_weights import FrozenWeights
from fedcomp.algorithm.masks.training import MaskTraining, masked_models
from fedcomp.client import Batch, Gradient, LocalResult
from fedcomp.client.minibatch import MinibatchSolver
from fedcomp.core.parameter_layout import (
    BIAS,
    NORMALISATION,
    WEIGHT,
    ParameterSubset,
    ParameterTensor,
    is_normalisation,
)
from fedcomp.random.keys import Key
from tests.conformance import world
from tests.looped import looped
from tests.parts import DENSE, Adam, Bernoulli, ServerSgd, Sgd, Svrg
from tests.refused import refused
from tests.rounds import one_round, rounds

SCORES, STILL = Adam(lr=0.1, batch_size=4), Adam(lr=1e-12, batch_size=4)


@pytest.mark.thorough
def test_the_estimate_is_unbiased_with_the_variance_of_its_draws() -> None:
    """Without learning E theta' = theta, and E||theta' - theta||^2 = sum theta (1 - theta) / K <= d / (4 K)."""
    sim = world.simulation(FedPM(STILL, smoothing="clip", clamp=1e-6), participation=world.FULL)
    state = sim.init()
    thetas = torch.stack([one_round(sim, state, index).after.theta for index in range(300)]).double()
    theta = state.theta.double()
    variance = float((theta * (1 - theta)).sum()) / world.NUM_CLIENTS
    errors = (thetas - theta).square().sum(1)
    assert abs(float(errors.mean()) - variance) < 5 * float(errors.std()) / 300**0.5
    assert variance <= len(theta) / (4 * world.NUM_CLIENTS)
    each = thetas.mean(0) - theta
    assert each.abs().max() < 5 * float(thetas.std(0).max()) / 300**0.5


def test_the_mode_is_the_squeezed_mean() -> None:
    grid = 0.01 + 0.98 * torch.arange(world.NUM_CLIENTS + 1) / world.NUM_CLIENTS
    many, alone = (
        one_round(world.simulation(FedPM(SCORES), participation=world.FULL, sizes=sizes)).after.theta
        for sizes in (world.SIZES, (9,))
    )
    assert torch.isin((many * 1e5).round(), (grid * 1e5).round()).all()
    assert set(alone.tolist()) == {float(grid[0]), float(grid[-1])}


def test_a_posterior_that_is_not_reset_counts_on() -> None:
    sim = world.simulation(FedPM(SCORES, reset_every=0, prior=2.0, smoothing="clip"), participation=world.FULL)
    state = world.run(sim, last=3)
    assert float(state.total) == 3 * world.NUM_CLIENTS
    assert state.ones.max() > world.NUM_CLIENTS  # of more than one round
    mode = (1 + state.ones) / (2 + state.total)
    assert torch.allclose(state.theta, mode.clamp(0.01, 0.99))
    every = world.run(world.simulation(FedPM(SCORES, reset_every=2), participation=world.FULL), last=3)
    assert float(every.total) == world.NUM_CLIENTS


def test_counts_down_are_the_probabilities_down() -> None:
    floats, counts = (
        list(rounds(world.simulation(FedPM(SCORES, sends=sends), participation=world.FULL)))
        for sends in ("theta", "counts")
    )
    assert torch.allclose(floats[-1].after.theta, counts[-1].after.theta, atol=1e-6)
    assert [one.bits["broadcast"] for one in counts] == [0] + 3 * [32 + 3 * len(counts[0].after.theta)]


def test_weighted_masks_count_as_many_as_there_are() -> None:
    """Weights 1 / p of those who happen to be there do not sum to 1, a posterior's counts sum to its masks."""
    algorithm, sizes = FedPM(SCORES, weights="samples", smoothing="clip"), (4, 12)
    sim = world.simulation(algorithm, participation=Bernoulli(0.5), sizes=sizes)
    numbers = set()
    for one in rounds(sim, 12):
        numbers.add(one.cohort.size)
        if one.cohort.size == 1:
            assert one.after.ones.unique().tolist() == [0.0, 1.0]
        elif one.cohort.size == 2:
            assert set(one.after.ones.round(decimals=5).tolist()) <= {0.0, 0.5, 1.5, 2.0}
    assert numbers == {0, 1, 2}


def test_moments_live_on_where_the_optimiser_does() -> None:
    sim, fresh = world.simulation(FedPM(SCORES, persist_optimizer=True)), world.simulation(FedPM(SCORES))
    took_part = torch.zeros(world.NUM_CLIENTS, dtype=torch.int64)
    for one in rounds(sim):
        took_part[one.cohort.ids] += 1
    per_round = torch.tensor([-(-size // 4) for size in world.SIZES])
    assert torch.equal(one.after.optimizer[-1][:, 0], took_part * per_round)
    assert torch.equal(one.after.optimizer[0].any(1), took_part > 0)

    forgot = one_round(sim, replace(one.before, optimizer=sim.init().optimizer), 3).after
    without = one_round(fresh, replace(one.before, optimizer=()), 3).after
    assert torch.equal(forgot.theta, without.theta)
    assert not torch.equal(one.after.theta, without.theta)
    assert without.optimizer == ()


def test_counts_of_nobody_are_the_first_probabilities() -> None:
    sim = world.simulation(FedPM(SCORES, sends="counts"), participation=world.FULL)
    one = one_round(sim, index=1)  # nobody took part in round 0
    assert torch.isfinite(one.after.theta).all()
    assert one.bits["broadcast"] == 32


@looped("coding", ["arithmetic", "prior"])
def test_coded_masks_are_the_same_masks_and_take_one_bit_more_at_most(coding: str) -> None:
    """Of even odds nothing can be saved: arithmetic codes then take the number of ones, or two bits, on top."""
    plain, coded = (world.run(world.simulation(FedPM(SCORES, coding=one))) for one in ("plain", coding))
    assert torch.equal(plain.theta, coded.theta)
    sim = world.simulation(FedPM(STILL, coding=coding, theta0=0.5), participation=world.FULL)
    bits = one_round(sim).bits
    assert bits["uplink"] <= world.NUM_CLIENTS * (sim.model.dim + 1)
    assert bits["paper/uplink"] == world.NUM_CLIENTS * sim.model.dim


def test_masks_that_settle_cost_less_by_the_servers_probabilities() -> None:
    client = Adam(lr=0.3, batch_size=4, epochs=3)
    plain, prior = (
        sum(one.bits["uplink"] for one in rounds(world.simulation(FedPM(client, coding=coding), rounds=12)))
        for coding in ("plain", "prior")
    )
    assert prior < 0.9 * plain


def test_certain_masks_are_not_certain_to_a_client() -> None:
    """theta of 0 and 1 has scores of logit(c) and logit(1 - c)."""
    sim = world.simulation(FedPM(STILL, clamp=0.2), participation=world.FULL)
    for theta, wanted in ((0.0, 0.2), (1.0, 0.8)):
        state = replace(sim.init(), theta=torch.full((sim.model.dim,), theta))
        ones = one_round(sim, state).metrics["mask/ones"]
        error = (0.2 * 0.8 / (sim.model.dim * world.NUM_CLIENTS)) ** 0.5
        assert abs(float(ones.mean()) - wanted) < 5 * error


def test_deployed_masks_are_drawn_each_by_itself_and_one_half_is_below_the_threshold() -> None:
    theta, num = torch.full((4000,), 0.5), 3
    models = masked_models(torch.ones(4000), theta, torch.zeros(0), Key(("deployed",)), "sample", num)
    drawn = models["test"].theta
    assert drawn.shape == (num, 4000)
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert abs(float((drawn[one] == drawn[other]).float().mean()) - 0.5) < 5 * 0.5 / 4000**0.5
    assert models["expected"].theta.unique().tolist() == [0.5]
    assert not models["threshold"].theta.any()


@dataclass(frozen=True)
class Linear:
    """Data whose loss is sum c w m: its gradient at any weights is c."""

    ids: Tensor
    slope: Tensor

    def gradient(self, theta: Tensor, batch: Batch, step: int) -> Gradient:
        return Gradient(self.slope.expand(theta.shape).clone(), torch.zeros(len(theta)), batch.stats)


@pytest.mark.parametrize(
    "algorithm",
    [FedPM(SCORES), FedPM(SCORES, persist_optimizer=True), BiCompFLGR(client=SCORES, block=16)],
    ids=["fedpm", "fedpm_going_on", "bicompfl"],
)
def test_masks_train_in_the_runs_dtype(algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where some columns are not masked, and are put beside the scores."""
    seen = []
    run = MinibatchSolver.run

    def noted(*args: Any, **options: Any) -> LocalResult:
        result = run(*args, **options)
        seen.append(result.value.dtype)
        return result

    monkeypatch.setattr(MinibatchSolver, "run", noted)
    sim = replace(world.simulation(algorithm, world.with_batch_norm), dtype=torch.float64)
    state = world.run(sim, last=2)
    assert set(seen) == {torch.float64}
    assert state.theta.dtype == torch.float32


@looped("ste", ["identity", "p_weighted"])
def test_the_gradient_goes_straight_through_the_draw(ste: str) -> None:
    tensors = (ParameterTensor(6, WEIGHT, 2), ParameterTensor(2, NORMALISATION), ParameterTensor(3, BIAS, 2))
    part, generator = ParameterSubset.of(tensors, lambda tensor: tensor.kind != NORMALISATION), Key(("g",)).generator()
    weights, slope = torch.randn(11, generator=generator), torch.randn(11, generator=generator)
    scores = torch.randn(2, 11, generator=generator)
    batch = Batch(torch.zeros(2, 1), torch.zeros(2, 1), None, torch.zeros(2, 0))
    data = Linear(torch.arange(2), slope)
    for normalisation in ("frozen", "trained"):
        training = MaskTraining(Sgd(lr=1.0), ste, 0.01, normalisation)
        grads = [training._hook(data, weights, part, Key((draw,)))(scores, batch, 0).grad for draw in ("a", "b")]
        assert torch.equal(*grads)
        theta = torch.sigmoid(scores)
        wanted = slope * weights * theta * (1 - theta) * (theta if ste == "p_weighted" else 1)
        assert torch.allclose(part.take(grads[0]), part.take(wanted), atol=1e-6)
        rest = slope[6:8].expand(2, -1) if normalisation == "trained" else torch.zeros(2, 2)
        assert torch.equal(part.rest.take(grads[0]), rest)


def test_frozen_weights_never_change_and_follow_from_the_seed() -> None:
    sim = world.simulation(FedPM(SCORES), module=world.with_batch_norm)
    first, after = sim.init(), world.run(sim)
    assert torch.equal(first.weights, after.weights)
    assert (ParameterSubset.of(sim.model.tensors, is_normalisation).take(first.theta) == 1).all()
    assert torch.equal(first.weights, world.simulation(FedPM(SCORES), module=world.with_batch_norm).init().weights)
    other = replace(sim, key=Key(("run", 1))).init()
    assert not torch.equal(other.weights, first.weights)


@looped("gain, value", [("kaiming", 2**0.5), ("e_fan_in", math.e), ("two_over_fan_in", 2), (0.7, 0.7)])
def test_signed_constants(gain: str | float, value: float) -> None:
    tensors = (ParameterTensor(4000, WEIGHT, 100), ParameterTensor(5, NORMALISATION), ParameterTensor(400, BIAS, 100))
    weights = FrozenWeights("signed_constant", gain).draw_weights(torch.full((4405,), 7.0), tensors, Key(("w",)))
    scale = value / 10
    assert weights[:4000].abs().unique().tolist() == pytest.approx([scale])
    assert weights[4005:].abs().unique().tolist() == pytest.approx([scale])
    assert abs(float(weights[:4000].mean())) < 5 * scale / 4000**0.5
    assert weights[4000:4005].tolist() == [7.0] * 5
    for distribution in ("uniform", "normal"):
        drawn = FrozenWeights(distribution, gain).draw_weights(torch.zeros(4405), tensors, Key(("w",)))
        assert float(drawn[:4000].std()) == pytest.approx(scale, rel=0.06)
        assert (float(drawn.abs().max()) <= 3**0.5 * scale) == (distribution == "uniform")


def test_first_probabilities() -> None:
    normal = torch.logit(FrozenWeights().first_probabilities(torch.zeros(20_000), Key(("t",))))
    assert abs(float(normal.mean())) < 0.04
    assert float(normal.std()) == pytest.approx(1, abs=0.03)
    assert FrozenWeights(theta0=0.5).first_probabilities(torch.zeros(3), Key()).tolist() == [0.5] * 3


MASKED = (FedPM(SCORES), FedMRN(Sgd(lr=0.1), ServerSgd(), DENSE))


def _without_weights(algorithm: Algorithm) -> None:
    algorithm.init(torch.zeros(3), torch.zeros(0), Setup(2, (ParameterTensor(3, NORMALISATION),), Key()))


test_wrong_options = refused(
    [
        ({"theta0": 1.0}, "algorithm.theta0=1.0 must be normal, or a number in .0, 1.: a probability"),
        ({"clamp": 0.0}, "algorithm.clamp=0.0 must be a number in"),
        ({"sends": "counts", "weights": "samples"}, "weighted masks are no counts"),
        (lambda: FedPM(Svrg(lr=0.1), persist_optimizer=True), "^algorithm.persist_optimizer=true makes no sense for"),
        *((lambda method=method: _without_weights(method), "this model has none: choose another") for method in MASKED),
    ],
    lambda **options: world.simulation(FedPM(SCORES, **options)).init(),
)


def test_entropy_of_masks_is_what_the_metrics_say() -> None:
    one = one_round(world.simulation(FedPM(STILL, theta0=0.5), participation=world.FULL))
    assert float(one.metrics["mask/ones"].mean()) == pytest.approx(0.5, abs=0.1)
    theta = one.after.theta
    entropy = -(theta * theta.log2() + (1 - theta) * (1 - theta).log2()).mean()
    assert float(one.metrics["mask/entropy"]) == pytest.approx(float(entropy), rel=1e-5)
