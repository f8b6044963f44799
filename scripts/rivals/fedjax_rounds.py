"""Rounds of FedJAX 0.0.17: one line a round, its seconds. Needs nothing of fedcomp.

python scripts/rivals/fedjax_rounds.py J2 30
"""

import sys
import time
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

jax.tree_map = jax.tree_util.tree_map  # a name that jax has dropped and FedJAX 0.0.17 uses

import fedjax  # noqa: E402
from fedjax.algorithms import fed_avg  # noqa: E402

# name: (shape of a sample, clients in all, clients in a round, batch, steps)
JOBS = {"J1": ((64,), 20, 20, 10, 8), "J2": ((28, 28, 1), 100, 10, 64, 10)}
LR = 0.05


def network(job: str, x: Any) -> Any:
    """The perceptron 64-32-10 or LeNet-5, as `fedcomp` has them."""
    if job == "J1":
        return hk.Sequential([hk.Linear(32), jax.nn.relu, hk.Linear(10)])(x)
    layers = [
        hk.Conv2D(6, 5, padding="SAME"),
        jax.nn.relu,
        hk.AvgPool((1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
        hk.Conv2D(16, 5, padding="VALID"),
        jax.nn.relu,
        hk.AvgPool((1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
        hk.Flatten(),
        *(layer for width in (120, 84) for layer in (hk.Linear(width), jax.nn.relu)),
        hk.Linear(10),
    ]
    return hk.Sequential(layers)(x)


def main() -> None:
    """Run rounds of FedAvg."""
    job, rounds = sys.argv[1], int(sys.argv[2])
    shape, num_clients, cohort, batch, steps = JOBS[job]
    random = np.random.default_rng(0)
    data = [
        fedjax.ClientDataset(
            {
                "x": random.standard_normal((batch * steps, *shape), dtype=np.float32),
                "y": random.integers(0, 10, batch * steps),
            }
        )
        for _ in range(num_clients)
    ]
    model = hk.without_apply_rng(hk.transform(lambda x: network(job, x)))

    def loss(params: Any, examples: Any, rng: Any) -> Any:
        log_p = jax.nn.log_softmax(model.apply(params, examples["x"]))
        return -jnp.take_along_axis(log_p, examples["y"][:, None], 1).mean()

    hparams = fedjax.ShuffleRepeatBatchHParams(batch_size=batch, num_epochs=None, num_steps=steps)
    grad = jax.jit(jax.grad(loss))
    algorithm = fed_avg.federated_averaging(grad, fedjax.optimizers.sgd(LR), fedjax.optimizers.sgd(1.0), hparams)
    state = algorithm.init(model.init(jax.random.PRNGKey(0), jnp.zeros((1, *shape))))
    for index in range(rounds + 2):
        chosen = random.choice(num_clients, cohort, replace=False)
        keys = jax.random.split(jax.random.PRNGKey(index), cohort)
        began = time.perf_counter()
        clients = [(str(client).encode(), data[client], key) for client, key in zip(chosen, keys)]
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)
        if index > 1:
            print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
