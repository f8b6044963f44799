"""SCAFFOLD, SCALLION and FedDyn against their equations, written out client by client: every round, every vector.

The limits of the other tests are the same for many wrong weights. Here clients hold 1 to 20 samples, make their own
numbers of steps at a falling learning rate, come in cohorts of every size, nobody among them, and send Top-k.
Below them: FedProx's fixed point, FedDyn's weights by samples, what they refuse.
Shape legend: N clients, D parameters.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedcomp.algorithm.contract import Algorithm
from fedcomp.algorithm.heterogeneity.control_variates import scale_of_changes
from fedcomp.algorithm.heterogeneity.feddyn import FedDyn
from fedcomp.algorithm.heterogeneity.fedprox import FedProx
from fedcomp.algorithm.heterogeneity.scaffold import Scaffold
from fedcomp.algorithm.heterogeneity.scallion import Scallion
from fedcomp.compressor import Compressor
from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger
from tests.algorithm.heterogeneous import D, Heterogeneous, N, Run, problem
from tests.conformance import world
from tests.looped import looped
from tests.parts import DENSE, Adam, Cohorts, Dense, Eden, ErrorFeedback, MRCSign, RandK, ServerSgd, Sgd, Spatial, TopK
from tests.refused import refused
from tests.rounds import one_round, rounds

NUM, FEATURES, CLASSES = world.NUM_CLIENTS, world.NUM_FEATURES, world.NUM_CLASSES
DIM = (FEATURES + 1) * CLASSES
COHORTS = ((1, 4, 6), (0,), tuple(range(NUM)), (), (2, 3), (4, 5), (2, 3), (1, 2, 3, 4, 5))
DECAY = 0.05
CLIENT = Sgd(lr=0.3, batch_size=4, epochs=2, schedule="exponential", lr_final=0.9, weight_decay=DECAY)
ETA_G, ALPHA = 0.7, 0.6
SERVER, TOP4 = ServerSgd(ETA_G), Compressor(TopK(k=4, positions="index"))
TOP6_DOWN = Compressor(TopK(k=6, positions="index"), ErrorFeedback())
Vectors = tuple[np.ndarray, ...]
"""x, c or h [D], and c_i or grad_i [N, D]."""


@dataclass(frozen=True)
class Losses:
    """The clients' softmax regressions in float64, on the batches that the simulation draws."""

    simulation: Simulation

    def start(self) -> np.ndarray:
        """[D] the first model."""
        theta, _ = self.simulation.model.init(self.simulation.key.fold_in("model"))
        return theta.double().numpy()

    def rate(self, index: int) -> float:
        """eta_l."""
        return CLIENT.learning_rate((index, self.simulation.rounds))

    def steps(self, index: int, client: int) -> list[Callable[[np.ndarray], np.ndarray]]:
        """g_i of each local step of a round."""
        return [self._gradient(x[0], y[0]) for x, y, _ in self._data(index, client).batches(CLIENT.batching)]

    def whole(self, client: int) -> Callable[[np.ndarray], np.ndarray]:
        """grad f_i."""
        x, y = self._data(0, client).take(torch.arange(world.SIZES[client])[None])
        return self._gradient(x[0], y[0])

    def _data(self, index: int, client: int) -> Any:
        key = self.simulation.round_key(index).fold_in("client")
        return self.simulation.clients(key, Ledger())._data(torch.tensor([client]), np.array([world.SIZES[client]]))

    def _gradient(self, x: Tensor, y: Tensor) -> Callable[[np.ndarray], np.ndarray]:
        inputs, classes = x.double().numpy(), y.numpy()

        def gradient(theta: np.ndarray) -> np.ndarray:
            logits = inputs @ theta[:-CLASSES].reshape(CLASSES, FEATURES).T + theta[-CLASSES:]
            share = np.exp(logits - logits.max(1, keepdims=True))
            error = (share / share.sum(1, keepdims=True) - np.eye(CLASSES)[classes]) / len(classes)
            return np.concatenate([(error.T @ inputs).ravel(), error.sum(0)]) + DECAY * theta

        return gradient


def _top(k: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.where(np.isin(np.arange(DIM), np.argsort(-np.abs(x), kind="stable")[:k]), x, 0.0)


def _scaffold(losses: Losses, option: str, alpha: float) -> Iterator[Vectors]:
    x, c, own, send = losses.start(), np.zeros(DIM), np.zeros((NUM, DIM)), _top(4)
    for index, cohort in enumerate(COHORTS):
        lr, update, change = losses.rate(index), np.zeros(DIM), np.zeros(DIM)
        for i in cohort:
            y, steps = x, losses.steps(index, i)
            for gradient in steps:
                y = y - lr * (gradient(y) - own[i] + c)
            new = losses.whole(i)(x) if option == "I" else own[i] - c + (x - y) / (len(steps) * lr)
            delta = send(alpha * (new - own[i]))
            update, change = update + send(y - x) / len(cohort), change + delta / NUM
            own[i] += delta
        x, c = x + ETA_G * update, c + change
        yield x, c, own


def _scallion(losses: Losses, down: Callable[[np.ndarray], np.ndarray] | None) -> Iterator[Vectors]:
    x, c, own, send, error = losses.start(), np.zeros(DIM), np.zeros((NUM, DIM)), _top(4), np.zeros(DIM)
    for index, cohort in enumerate(COHORTS):
        lr, mean, num_steps = losses.rate(index), np.zeros(DIM), 0.0
        for i in cohort:
            y, steps = x, losses.steps(index, i)
            for gradient in steps:
                y = y - lr * (gradient(y) - own[i] + c)
            message = send(ALPHA * ((x - y) / (len(steps) * lr) - c))
            mean, num_steps = mean + message / len(cohort), num_steps + len(steps) / len(cohort)
            own[i] += message
        if cohort and down is not None:
            meant = mean + error
            mean = down(meant)
            error = meant - mean
        if cohort:
            x = x - ETA_G * lr * num_steps * (mean / ALPHA + c)
            c = c + len(cohort) / NUM * mean
        yield x, c, own


def _feddyn(losses: Losses) -> Iterator[Vectors]:
    x, h, own, send = losses.start(), np.zeros(DIM), np.zeros((NUM, DIM)), _top(4)
    for index, cohort in enumerate(COHORTS):
        if cohort:
            lr, mean, total = losses.rate(index), np.zeros(DIM), np.zeros(DIM)
            for i in cohort:
                y = x
                for gradient in losses.steps(index, i):
                    y = y - lr * (gradient(y) - own[i] + ALPHA * (y - x))
                change = send(y - x)
                own[i] -= ALPHA * change
                mean, total = mean + change / len(cohort), total + change
            h = h - ALPHA / NUM * total
            x = x + mean - h / ALPHA
        yield x, h, own


CASES: dict[str, tuple[Algorithm, Callable[[Losses], Iterator[Vectors]]]] = {
    "scaffold-I": (Scaffold(CLIENT, SERVER, TOP4, "I", 0.8), lambda losses: _scaffold(losses, "I", 0.8)),
    "scaffold-II": (Scaffold(CLIENT, SERVER, TOP4), lambda losses: _scaffold(losses, "II", 1.0)),
    "scallion": (Scallion(CLIENT, SERVER, TOP4, DENSE, ALPHA), lambda losses: _scallion(losses, None)),
    "scallion-mean": (
        Scallion(CLIENT, SERVER, TOP4, DENSE, ALPHA, sends="mean_update"),
        lambda losses: _scallion(losses, None),
    ),
    "scallion-down": (Scallion(CLIENT, SERVER, TOP4, TOP6_DOWN, ALPHA), lambda losses: _scallion(losses, _top(6))),
    "feddyn": (FedDyn(CLIENT, TOP4, ALPHA), _feddyn),
}


@looped("case", CASES)
def test_every_round_is_what_the_equations_say(case: str) -> None:
    algorithm, plain = CASES[case]
    module, participation = partial(nn.Linear, FEATURES, CLASSES), Cohorts(COHORTS)
    made = world.simulation(algorithm, module, participation, chunk_size=2, rounds=len(COHORTS))
    simulation = world.in_float64(made)
    pairs = zip(rounds(simulation), plain(Losses(simulation)), strict=True)
    for index, (one, (x, c, own)) in enumerate(pairs):
        for found, wanted in ((one.after.theta, x), (one.after.control, c), (one.after.controls, own)):
            np.testing.assert_allclose(found.double().numpy(), wanted, rtol=0, atol=2e-6, err_msg=f"round {index}")
    assert np.abs(own).max() > 0.1


def test_the_drift_is_the_mean_square_of_how_far_clients_are_from_their_mean() -> None:
    """Of a first round with option II, in which c_i is (x - y_i) / (K eta_l)."""
    client = Sgd(lr=0.1, batch_size=4, steps=3)
    one = one_round(world.simulation(Scaffold(client, ServerSgd(), DENSE), participation=world.FULL))
    moved = -0.3 * one.after.controls
    torch.testing.assert_close(one.metrics["drift/client"], (moved - moved.mean(0)).square().sum(1).mean())


def test_a_round_of_learning_rate_zero_changes_nothing() -> None:
    """The last one of a cosine: nobody moves, and a mean gradient of no way says nothing."""
    client = replace(CLIENT, schedule="cosine", lr_final=0.0)
    for algorithm in (Scaffold(client, SERVER, TOP4), Scallion(client, SERVER, TOP4, DENSE, ALPHA)):
        *_, last = rounds(world.simulation(algorithm, rounds=3))
        for name in ("theta", "control", "controls"):
            assert torch.equal(getattr(last.after, name), getattr(last.before, name)), (algorithm, name)


STEP, CLIENTS = ServerSgd(), problem(0)
TEN = Sgd(lr=0.1, steps=10)


def _prox(mu: float, client: Sgd) -> FedProx:
    return FedProx(replace(client, proximal=mu), STEP, DENSE, DENSE, "uniform")


@looped("mu, floor", [(1.0, 3.9e-2), (10.0, 9.2e-4)])
def test_its_fixed_point_is_that_of_exact_proximal_steps(mu: float, floor: float) -> None:
    """mean H_i (H_i + mu)^-1 H_i ... = 0 at x: a step from there returns to it, at the distance of the program."""
    eye = torch.eye(D, dtype=torch.float64)
    shrink = torch.linalg.solve(CLIENTS.hessians + mu * eye, CLIENTS.hessians)  # y_i - x = shrink_i (b_i - x)
    pull = (shrink @ CLIENTS.centres[:, :, None]).mean(0)[:, 0]
    fixed = torch.linalg.solve(shrink.mean(0), pull)
    assert CLIENTS.distance(fixed) == pytest.approx(floor, rel=0.05)
    exact = Sgd(lr=0.9 / (1 + mu), steps=300)
    run = Run(_prox(mu, exact), CLIENTS)
    state = run.once(run.init(fixed), 0)
    assert torch.allclose(state.theta.double(), fixed, rtol=0, atol=1e-4)


RAND4 = Compressor(RandK(k=4))
TOP10_DOWN = Compressor(TopK(k=10, positions="index"), ErrorFeedback())


def test_changes_are_scaled_by_what_an_unbiased_codec_allows_unless_told() -> None:
    assert scale_of_changes(None, RAND4, CLIENTS.layers, N) == pytest.approx(0.1)


test_wrong_input = refused(
    [
        (lambda: FedProx(TEN, STEP, DENSE, DENSE), "client.proximal=0 makes FedProx FedAvg: give its mu, for .*=0.01"),
        (lambda: Scaffold(replace(TEN, momentum=0.9), STEP, DENSE), "plain steps, but client.momentum=0.9 was given"),
        (lambda: Scaffold(Adam(lr=0.1), STEP, DENSE), "needs plain steps, but client=adam was given"),
        (lambda: Scallion(replace(TEN, clip_norm=1.0), STEP, DENSE, DENSE), "but client.clip_norm=1.0 was given"),
        (lambda: Scaffold(replace(TEN, proximal=0.1), STEP, DENSE), "client.proximal=0.1 does not go with SCAFFOLD"),
        (lambda: Scaffold(TEN, STEP, DENSE, alpha=0), r"algorithm.alpha=0 must be a number in \(0, 1\]"),
        (lambda: Scaffold(TEN, STEP, replace(TOP4, feedback=ErrorFeedback())), "compressor.feedback must be none"),
        (lambda: Scaffold(TEN, STEP, replace(RAND4, estimator=Spatial("avg"))), "compressor.estimator must be"),
        (lambda: Scallion(TEN, STEP, Compressor(MRCSign(block=8)), DENSE), "unbiased or only shrinks, and MRCSign as"),
        (lambda: Scallion(TEN, STEP, RAND4, TOP10_DOWN, sends="model"), "algorithm.sends=model needs a dense downlink"),
        (lambda: Scallion(TEN, STEP, RAND4, TOP4), "downlink.feedback=none makes the control variates .* differ for"),
        (lambda: Scallion(TEN, STEP, RAND4, RAND4), "downlink.feedback=none makes the control variates"),
        (lambda: Scallion(TEN, STEP, RAND4, Compressor(Dense("float16"))), "downlink.feedback=none makes the control"),
        (lambda: Run(Scallion(TEN, STEP, RAND4, DENSE, 0.2), CLIENTS).init(), r"is above 1 / \(1 \+ omega\) = 0.1 of"),
        (lambda: Run(Scaffold(TEN, STEP, RAND4, alpha=0.2), CLIENTS).init(), "take algorithm.alpha=null, or less"),
        (lambda: Run(Scaffold(TEN, STEP, Compressor(Eden())), CLIENTS).init(), "omega of Eden has no closed form:"),
        (lambda: FedDyn(TEN, RAND4), "FedDyn needs a compressor that only shrinks, not RandK as config"),
        (lambda: FedDyn(replace(TEN, proximal=0.1), DENSE), "client.proximal=0.1 does not go with FedDyn"),
        (lambda: FedDyn(TEN, replace(TOP4, feedback=ErrorFeedback())), "compressor.feedback must be none: FedDyn"),
        (lambda: FedDyn(TEN, Compressor.of(TopK(k=4), predictor="ef21")), "compressor.predictor must be none: FedDyn"),
    ]
)


def test_option_one_goes_with_momentum_and_a_given_alpha_with_any_codec() -> None:
    Scaffold(replace(TEN, momentum=0.9), STEP, DENSE, "I")
    Run(Scaffold(TEN, STEP, Compressor(Eden()), alpha=0.4), CLIENTS).init()


def test_the_mean_of_the_models_is_evaluated_beside_the_servers() -> None:
    run = Run(FedDyn(TEN, DENSE), CLIENTS)
    state = run.once(run.init(), 0)
    models = run.algorithm.evaluation_models(state, Key())
    first, mean = models["test"].theta[0], models["mean"].theta[0]
    assert torch.allclose(first, mean - state.control / 0.1)
    assert not torch.allclose(first, mean, atol=1e-2)


def test_weights_by_samples_minimise_the_mean_over_samples() -> None:
    """The weighted objective's optimum, which is not that of the mean over clients."""
    weight = torch.tensor([0.4, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05])

    class Weighted(Run):
        def cohort(self, index: int) -> Cohort:
            return Cohort.of(list(range(N)), weight)

    hessian = (weight.double()[:, None, None] * CLIENTS.hessians).sum(0)
    pull = (weight.double()[:, None] * CLIENTS.gradients(torch.zeros(D))).sum(0)
    optimum = torch.linalg.solve(hessian, -pull)
    run = Weighted(FedDyn(TEN, DENSE, weights="samples"), CLIENTS)
    state = run.last(250)
    assert float((state.theta - optimum).square().sum() / optimum.square().sum()) < 1e-6
    assert CLIENTS.distance(optimum) > 0.1
    assert torch.allclose(state.control, weight @ state.controls, rtol=0, atol=1e-5)
    assert run.algorithm.full_participation
    assert not FedDyn(TEN, DENSE).full_participation


def test_any_local_solver_will_do() -> None:
    assert Run(FedDyn(Adam(lr=0.02, steps=10), DENSE), Heterogeneous(CLIENTS.hessians, CLIENTS.centres)).floor(60) < 0.2
