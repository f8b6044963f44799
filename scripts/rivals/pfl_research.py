"""Rounds of pfl-research (apple/pfl-research 0.6): one line a round, its seconds. Needs nothing of fedcomp.

    torchrun --nproc_per_node=2 scripts/rivals/pfl_research.py J2 30

Processes share the clients of a round, each in one thread.
"""

import sys
import time

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.pytorch_ops import distributed
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional

# name: (shape of a sample, clients in all, clients in a round, batch, steps)
JOBS = {"J1": ((64,), 20, 20, 10, 8), "J2": ((1, 28, 28), 100, 10, 64, 10)}
LR = 0.05


class Network(nn.Sequential):
    """The job's network, with the methods that pfl-research asks for."""

    def loss(self, x: Tensor, y: Tensor, eval: bool = False) -> Tensor:
        """Mean cross-entropy."""
        self.train(not eval)
        return functional.cross_entropy(self(x), y.long())

    def metrics(self, x: Tensor, y: Tensor, eval: bool = False) -> dict[str, Weighted]:
        """The loss of a user."""
        return {"loss": Weighted(self.loss(x, y, eval).item() * len(y), len(y))}


def network(job: str) -> Network:
    """The perceptron 64-32-10 or LeNet-5, as `fedcomp` has them."""
    if job == "J1":
        return Network(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    first = nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2)
    second = nn.Conv2d(6, 16, 5), nn.ReLU(), nn.AvgPool2d(2)
    head = nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)
    return Network(*first, *second, nn.Flatten(), *head)


class Clock(TrainingProcessCallback):
    """Prints the seconds of every round but the first."""

    began: float | None = None

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        now = time.perf_counter()
        if self.began is not None and distributed.global_rank == 0:
            print(now - self.began, flush=True)
        self.began = now
        return False, Metrics()


def main() -> None:
    """Run rounds of FedAvg."""
    torch.set_num_threads(1)
    job, rounds = sys.argv[1], int(sys.argv[2])
    shape, num_clients, cohort, batch, steps = JOBS[job]
    random = np.random.default_rng(0)
    data = {
        str(client): [
            torch.from_numpy(random.standard_normal((batch * steps, *shape), dtype=np.float32)),
            torch.from_numpy(random.integers(0, 10, batch * steps)),
        ]
        for client in range(num_clients)
    }
    users = FederatedDataset.from_slices(data, get_user_sampler("random", list(data)))
    module = network(job)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    backend = SimulatedBackend(users, users)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds + 2,
            evaluation_frequency=1 << 30,
            train_cohort_size=cohort,
            val_cohort_size=None,
        ),
        backend,
        model,
        NNTrainHyperParams(local_batch_size=batch, local_num_epochs=1, local_learning_rate=LR),
        NNEvalHyperParams(local_batch_size=batch),
        [Clock()],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    main()
