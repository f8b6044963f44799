"""SCAFFOLD, SCALLION and FedDyn against their equations, written out client by client: every round, every vector.

The limits of the other tests are the same for many wrong weights. Here clients hold 1 to 20 samples, make their own
numbers of steps at a falling learning rate, come in cohorts of every size, nobody among them, and send Top-k.
Shape legend: N clients, D parameters.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedcomp.algorithm.contract import Algorithm
from fedcomp.algorithm.heterogeneity.feddyn import FedDyn
from fedcomp.algorithm.heterogeneity.scaffold import Scaffold
from fedcomp.algorithm.heterogeneity.scallion import Scallion
from fedcomp.core.cohort import Cohort
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger
from tests.conformance import world
from tests.looped import looped
from tests.parts import Compressor, Dense, ErrorFeedback, ServerSgd, Sgd, TopK

N, FEATURES, CLASSES = world.NUM_CLIENTS, world.NUM_FEATURES, world.NUM_CLASSES
D = (FEATURES + 1) * CLASSES
COHORTS = ((1, 4, 6), (0,), tuple(range(N)), (), (2, 3), (4, 5), (2, 3), (1, 2, 3, 4, 5))
CLIENT = Sgd(lr=0.3, batch_size=4, epochs=2, schedule="exponential", lr_final=0.9)
ETA_G, ALPHA = 0.7, 0.6
SERVER, DENSE, TOP4 = ServerSgd(ETA_G), Compressor(Dense()), Compressor(TopK(k=4, positions="index"))
TOP6_DOWN = Compressor(TopK(k=6, positions="index"), ErrorFeedback())
Vectors = tuple[np.ndarray, ...]
"""x, c or h [D], and c_i or grad_i [N, D]."""


@dataclass(frozen=True)
class Given:
    """Participation by a list; all weights follow from the clients' importance."""

    cohorts: tuple[tuple[int, ...], ...]

    def sample(self, key: Any, importance: Tensor, round_index: int) -> Cohort:
        clients = self.cohorts[round_index]
        weight = importance[list(clients)] if clients else importance[:0]
        return Cohort.of(clients, weight / weight.sum())


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
            return np.concatenate([(error.T @ inputs).ravel(), error.sum(0)])

        return gradient


def _top(k: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.where(np.isin(np.arange(D), np.argsort(-np.abs(x), kind="stable")[:k]), x, 0.0)


def _scaffold(losses: Losses, option: str, alpha: float) -> Iterator[Vectors]:
    x, c, own, send = losses.start(), np.zeros(D), np.zeros((N, D)), _top(4)
    for index, cohort in enumerate(COHORTS):
        lr, update, change = losses.rate(index), np.zeros(D), np.zeros(D)
        for i in cohort:
            y, steps = x, losses.steps(index, i)
            for gradient in steps:
                y = y - lr * (gradient(y) - own[i] + c)
            new = losses.whole(i)(x) if option == "I" else own[i] - c + (x - y) / (len(steps) * lr)
            delta = send(alpha * (new - own[i]))
            update, change = update + send(y - x) / len(cohort), change + delta / N
            own[i] += delta
        x, c = x + ETA_G * update, c + change
        yield x, c, own


def _scallion(losses: Losses, down: Callable[[np.ndarray], np.ndarray] | None) -> Iterator[Vectors]:
    x, c, own, send, error = losses.start(), np.zeros(D), np.zeros((N, D)), _top(4), np.zeros(D)
    for index, cohort in enumerate(COHORTS):
        lr, mean, num_steps = losses.rate(index), np.zeros(D), 0.0
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
            c = c + len(cohort) / N * mean
        yield x, c, own


def _feddyn(losses: Losses) -> Iterator[Vectors]:
    x, h, own, send = losses.start(), np.zeros(D), np.zeros((N, D)), _top(4)
    for index, cohort in enumerate(COHORTS):
        if cohort:
            lr, mean, total = losses.rate(index), np.zeros(D), np.zeros(D)
            for i in cohort:
                y = x
                for gradient in losses.steps(index, i):
                    y = y - lr * (gradient(y) - own[i] + ALPHA * (y - x))
                change = send(y - x)
                own[i] -= ALPHA * change
                mean, total = mean + change / len(cohort), total + change
            h = h - ALPHA / N * total
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
    module, participation, rounds = partial(nn.Linear, FEATURES, CLASSES), Given(COHORTS), len(COHORTS)
    made = world.simulation(algorithm, module, participation, chunk_size=2, rounds=rounds)  # type: ignore[arg-type]
    simulation = world.in_float64(made)
    state = simulation.init()
    for index, (x, c, own) in enumerate(plain(Losses(simulation))):
        state, _ = simulation.round(index, state, Ledger())
        for found, wanted in ((state.theta, x), (state.control, c), (state.controls, own)):
            np.testing.assert_allclose(found.double().numpy(), wanted, rtol=0, atol=2e-6, err_msg=f"round {index}")
    assert np.abs(own).max() > 0.1
