"""The rounds that `bench.py` times, for fedcomp and for the baselines."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from fedcomp.algorithm.bicompfl.bicompfl_gr import BiCompFLGR
from fedcomp.algorithm.bicompfl.bicompfl_pr import BiCompFLPR
from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.client.adam import Adam
from fedcomp.client.contract import LoopRunner
from fedcomp.client.sgd import Sgd
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.model.build import build
from fedcomp.model.chunking import chunk_size
from fedcomp.model.networks.cnn import cnn4, lenet5
from fedcomp.model.networks.cnn_bn import cnn4_bn
from fedcomp.model.networks.mlp import mlp
from fedcomp.participation.full import Full
from fedcomp.random.keys import Key
from fedcomp.runtime.cores import num_cores
from fedcomp.runtime.workers import Workers
from fedcomp.server.sgd import Sgd as ServerSgd
from fedcomp.simulation.autotune.conv_autotune import plan_convolutions
from fedcomp.simulation.chunks.client_data import ClientShards
from fedcomp.simulation.fused_loop import loop_runner_on
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger, Link
from scripts.lean_loop import lean_rounds
from scripts.naive_loop import ClientData, naive_round

LR = 0.05
Round = Callable[[], list[torch.Tensor]]
"""Runs rounds; returns the parameters that they end with."""


@dataclass(frozen=True)
class Job:
    """One comparison.

    Attributes:
        what: shown in the table. factory: makes the network. shape: of one sample. clients, batch, steps: of a round.
        goal: the ratio that the project wants at least on a CPU; None: no goal.
        goal_ms: milliseconds that it wants at most on one H200; None: no goal. gpu_steps: steps there, if others.
        method: makes the algorithm from the number of steps and of samples in each.
        rounds: timed together as one measurement.
    """

    what: str
    factory: Callable[..., nn.Module]
    shape: tuple[int, ...]
    clients: int
    batch: int
    steps: int
    goal: float | None = None
    goal_ms: float | None = None
    gpu_steps: int | None = None
    method: Callable[[int, int], Any] = lambda steps, batch: _fedavg(steps, batch)
    rounds: int = 1

    def on(self, device: torch.device) -> "Job":
        """The job as it is run there."""
        return replace(self, steps=self.gpu_steps) if device.type == "cuda" and self.gpu_steps else self

    def __str__(self) -> str:
        return f"{self.what}, {self.clients} clients, batch {self.batch}, {self.steps} steps"


def simple_cnn(input_shape: tuple[int, ...], num_outputs: int) -> nn.Sequential:
    """The network of pfl-research's CIFAR-10 baseline (`simple_cnn`), 1,626,442 parameters, without its dropout."""
    channels, height, width = input_shape
    features = 64 * ((height - 4) // 2) * ((width - 4) // 2)
    convolutions = nn.Conv2d(channels, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(features, 128), nn.ReLU(), nn.Linear(128, num_outputs))


def _fedavg(steps: int, batch: int) -> FedAvg:
    client = Sgd(lr=LR, batch_size=batch, steps=steps)
    return FedAvg(client, ServerSgd(), Compressor(Dense()), Compressor(Dense()))


def _bicompfl(kind: Callable[..., Any]) -> Callable[[int, int], Any]:
    return lambda steps, batch: kind(client=Adam(lr=0.1, batch_size=batch, steps=steps), ess_every=0)


CIFAR, MNIST = (3, 32, 32), (1, 28, 28)
JOBS = {
    "J1": Job("MLP 64-32-10", mlp, (64,), 20, 10, 8, 40, 0.3, rounds=20),
    "J2": Job("LeNet-5", lenet5, MNIST, 10, 64, 10, 2, 2.5),
    "J4": Job("CNN4 with BatchNorm", cnn4_bn, CIFAR, 10, 64, 3, 1.5, 3.5),
    "J3": Job("4CNN (1,933,258)", cnn4, MNIST, 10, 128, 1, 1.2, 20, gpu_steps=10),
    "PFL": Job("pfl-research CNN (1,626,442)", simple_cnn, CIFAR, 50, 10, 5, None, 40),
    "GR": Job("BiCompFL-GR, 4CNN", cnn4, MNIST, 10, 128, 1, gpu_steps=10, method=_bicompfl(BiCompFLGR)),
    "PR": Job("BiCompFL-PR, 4CNN", cnn4, MNIST, 10, 128, 1, gpu_steps=10, method=_bicompfl(BiCompFLPR)),
}
"""Goals in ms: J3's is that of tf32 (bf16: 12); 1,500 rounds of PFL are then one minute."""
CPU_JOBS = ("J1", "J2", "J4", "J3")
"""The jobs that are timed by default on a CPU."""


def fedcomp_side(job: Job, device: torch.device, precision: str) -> Round:
    """A function that runs complete rounds of fedcomp."""
    advance = fedcomp_rounds(job, device, precision, loop_runner_on(device))
    return lambda: [advance().theta]


def fedcomp_rounds(job: Job, device: torch.device, precision: str, loop_runner: LoopRunner | None) -> Callable[[], Any]:
    """A function that runs complete rounds and returns the state; loop_runner: how local loops are repeated."""
    per_client = job.batch * job.steps
    x, y = _data(job)
    raw = x.movedim(1, -1).contiguous() if len(job.shape) == 3 else x
    dataset = Dataset("bench", Samples(raw, y), Samples(raw[:64], y[:64]), "classification", 10).to(device)
    key = Key(("bench",))
    model = build(job.factory, key, job.shape, 10, "classification", precision=precision)
    shards = ClientShards.of(list(torch.arange(len(y)).split(per_client)), device)
    simulation = Simulation(
        algorithm=job.method(job.steps, job.batch),
        dataset=dataset,
        shards=shards,
        model=model,
        participation=Full(),
        key=key,
        rounds=1,
        chunk_size=chunk_size(model, device, job.shape, job.batch),
        link=Link,
        device=device,
        workers=Workers(1 if device.type == "cuda" else num_cores()),
        loop_runner=loop_runner,
    )
    if device.type == "cuda":
        plan = plan_convolutions(simulation, "auto", job.batch, False, None)
        simulation = simulation if plan is None else plan.applied_to(simulation)
    state, ledger, index = simulation.init(), Ledger(), 0

    def run() -> Any:
        nonlocal state, index
        for _ in range(job.rounds):
            state, _ = simulation.round(index, state, ledger)
            index += 1
        return state

    return run


def naive_side(job: Job, device: torch.device) -> Round:
    """A function that runs rounds of the plain loop: FedAvg of weights, whatever the method on the other side."""
    clients = _clients(job, device)
    module = job.factory(job.shape, 10).to(device)

    def run() -> list[torch.Tensor]:
        for _ in range(job.rounds):
            module.load_state_dict(naive_round(module, clients, job.batch, job.steps, LR))
        return list(module.parameters())

    return run


def lean_side(job: Job, device: torch.device) -> Round:
    """A function that runs rounds of the lean loop, as `naive_side` does of the plain one."""
    clients = _clients(job, device)
    module = job.factory(job.shape, 10).to(device)
    round_of_lean = lean_rounds(module, clients, job.batch, job.steps, LR)

    def run() -> list[torch.Tensor]:
        for _ in range(job.rounds):
            round_of_lean()
        return list(module.parameters())

    return run


def _clients(job: Job, device: torch.device) -> list[ClientData]:
    x, y = (part.to(device) for part in _data(job))
    per_client = job.batch * job.steps
    return list(zip(x.split(per_client), y.split(per_client)))


def _data(job: Job) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    num = job.clients * job.batch * job.steps
    return torch.randn(num, *job.shape, generator=generator), torch.randint(0, 10, (num,), generator=generator)
