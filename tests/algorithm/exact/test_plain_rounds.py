"""LoCoDL, TAMUNA, DASHA and MARINA against their equations, written out client by client: every round, every vector.

The limits of the other tests are the same for many wrong steps. Codec, masks and numbers of local steps are the
library's, drawn from the same keys; what they have to be is tested elsewhere.
Shape legend: N clients, D entries.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch

from fedcomp.algorithm.contract import Algorithm
from fedcomp.algorithm.exact.gradient_estimate import GradientEstimate
from fedcomp.algorithm.exact.local_steps import geometric
from fedcomp.algorithm.exact.locodl import LoCoDL
from fedcomp.algorithm.exact.tamuna import Masks, Tamuna
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from tests.algorithm.heterogeneous import D, N, Run, problem
from tests.looped import looped
from tests.parts import GD, Compressor, RandK, ServerSgd

CLIENTS, CODEC, ROUNDS = problem(0), RandK(k=4), 8
OMEGA, GAMMA, P, DECAY = D / 4 - 1, 0.6, 0.4, 0.01
RANDK = Compressor(CODEC)
Vectors = dict[str, np.ndarray]
"""By the name of the state's field."""


def _key(run: Run, index: int) -> Key:
    return Key(("heterogeneous", run.seed)).fold_in("round", index)


def _gradient(client: int, x: np.ndarray, decay: float = 0.0) -> np.ndarray:
    return CLIENTS.hessians[client].numpy() @ (x - CLIENTS.centres[client].numpy()) + decay * x


def _coded(rows: np.ndarray, name: str, key: Key) -> np.ndarray:
    """[N, D] C_i of each row."""
    common = SharedKnowledge(key.fold_in(name), torch.arange(N), CLIENTS.layers)
    x = torch.from_numpy(rows).float()
    return CODEC.decode(CODEC.encode(x, common, key.fold_in(name, "sender")), common).double().numpy()


def _locodl(run: Run, rho: float, chi: float) -> Iterator[Vectors]:
    x, u, y, v, q = np.zeros((N, D)), np.zeros((N, D)), np.zeros(D), np.zeros(D), DECAY / 2
    dual = P * chi / (GAMMA * (1 + 2 * OMEGA))
    for index in range(ROUNDS):
        for _ in range(geometric(P, _key(run, index).fold_in("steps"))):
            x = np.stack([x[i] - GAMMA * (_gradient(i, x[i], DECAY) - q * x[i] - u[i]) for i in range(N)])
            y = y - GAMMA * (q * y - v)
        d = _coded(x - y, "difference", _key(run, index))
        mean = d.sum(0) / (2 * N)
        x, y = (1 - rho) * x + rho * (y + mean), y + rho * mean
        u, v = u + dual * (mean - d), v + dual * mean
        yield {"theta": y, "models": x, "duals": u, "dual": v}


def _tamuna(run: Run, sparsity: int, chi: float) -> Iterator[Vectors]:
    mean, h = np.zeros(D), np.zeros((N, D))
    for index in range(ROUNDS):
        key, cohort = _key(run, index), run.cohort(index).clients
        masks = Masks.draw(len(cohort), sparsity, D, key.fold_in("masks"), torch.device("cpu")).whole(D).numpy()
        models = {}
        for i in cohort:
            models[i] = mean
            for _ in range(geometric(P, key.fold_in("steps"))):
                models[i] = models[i] - GAMMA * (_gradient(i, models[i], DECAY) - h[i])
        mean = sum(mask * models[i] for mask, i in zip(masks, cohort, strict=True)) / sparsity
        for mask, i in zip(masks, cohort, strict=True):
            h[i] += P * chi / GAMMA * mask * (mean - models[i])
        yield {"theta": mean, "duals": h}


def _dasha(run: Run, start: str) -> Iterator[Vectors]:
    x, a = np.zeros(D), 1 / (2 * OMEGA + 1)
    h = np.stack([_gradient(i, x) for i in range(N)])
    g = h if start == "gradient" else np.zeros((N, D))
    for index in range(ROUNDS):
        new = np.stack([_gradient(i, x) for i in range(N)])
        if index or start == "zero":
            g = g + _coded(new - h - a * (g - h), "change", _key(run, index))
        h, x = new, x - 0.9 * GAMMA * g.mean(0)
        yield {"theta": x, "gradients": h, "estimates": g}


def _marina(run: Run) -> Iterator[Vectors]:
    x, h, g, coins = np.zeros(D), np.zeros((N, D)), np.zeros((N, D)), []
    for index in range(ROUNDS):
        key, new = _key(run, index), np.stack([_gradient(i, x) for i in range(N)])
        coins.append(index == 0 or float(key.fold_in("full").uniform(torch.zeros(1, dtype=torch.int64), 1)) < P)
        g = new if coins[-1] else g + _coded(new - h, "change", key)
        h, x = new, x - 0.9 * GAMMA * g.mean(0)
        yield {"theta": x, "gradients": h, "estimates": g}
    assert 1 < sum(coins) < ROUNDS


STEPS, STEP = GD(lr=GAMMA, weight_decay=DECAY), ServerSgd(0.9)
THEORY = 1 / (1 + OMEGA / N)
CASES: dict[str, tuple[Algorithm, int | None, Callable[[Run], Iterator[Vectors]]]] = {
    "locodl": (LoCoDL(STEPS, RANDK, P), None, lambda run: _locodl(run, THEORY, THEORY)),
    "locodl-relay": (LoCoDL(STEPS, RANDK, P, 0.7, 0.3, relay=True), None, lambda run: _locodl(run, 0.7, 0.3)),
    "tamuna": (Tamuna(STEPS, 3, P), None, lambda run: _tamuna(run, 3, N * 2 / (3 * (N - 1)))),
    "tamuna-3 of 7": (Tamuna(STEPS, 2, P, 0.5), 3, lambda run: _tamuna(run, 2, 0.5)),
    "dasha": (GradientEstimate(GD(lr=GAMMA), STEP, RANDK), None, lambda run: _dasha(run, "zero")),
    "dasha-gradient": (
        GradientEstimate(GD(lr=GAMMA), STEP, RANDK, start="gradient"),
        None,
        lambda run: _dasha(run, "gradient"),
    ),
    "marina": (GradientEstimate(GD(lr=GAMMA), STEP, RANDK, "marina", p=P), None, _marina),
}


@looped("case", CASES)
def test_every_round_is_what_the_equations_say(case: str) -> None:
    algorithm, participants, plain = CASES[case]
    run = Run(algorithm, CLIENTS, participants)
    for index, (state, wanted) in enumerate(zip(run.states(ROUNDS), plain(run), strict=True)):
        for name, vector in wanted.items():
            found = getattr(state, name).double().numpy()
            scale = max(1.0, float(np.abs(vector).max()))
            np.testing.assert_allclose(found, vector, rtol=0, atol=1e-5 * scale, err_msg=f"{name}, round {index}")
