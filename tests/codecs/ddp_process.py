"""What each of three processes does for `test_codecs.py`: trains with every hook under torch's DDP (gloo)."""

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from hydra import compose, initialize_config_dir
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import fedcomp.codecs as fc
from fedcomp.codecs import ddp
from fedcomp.config import schema
from fedcomp.config.factory import build_simulation
from fedcomp.core.folders import CONF
from fedcomp.simulation.simulation import Simulation

SIZE = 3
"""Processes: the mean of two would be exact."""
LR, STEPS = 0.5, 12
GATHERED_STEPS = 5
"""Of each compressor: the error of the first messages is in the next ones, and buckets are filled anew after one."""
GATHERED: dict[str, dict[str, Any]] = {
    "dense": {},
    "topk": {"fraction": 0.05, "feedback": "error"},
    "sign": {"feedback": "error"},
    "drive": {"feedback": "error"},
    "randk": {"fraction": 0.1},
    "qsgd": {},
    "eden": {"bits": 2},
}
"""Compressors of `all_gather_hook`, with options; `qsgd` has messages of varying length."""


@functools.cache
def simulation(name: str = "dense", **options: Any) -> Simulation:
    """FedAvg with one step of each client on all of its samples, in float64; a client for each process."""
    schema.register()
    given = [f"compressor.{key}={value}" for key, value in options.items()]
    words = [f"compressor={name}", *given, f"num_clients={SIZE}", "client.steps=1", f"client.lr={LR}"]
    words += ["client.batch_size=2000", "dtype=float64", "algorithm.weights=uniform", "device=cpu", "model.hidden=[16]"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return build_simulation(compose("train", words), torch.device("cpu"))[0]


def network(sim: Simulation) -> nn.Module:
    """The simulation's model in float64, with its first parameters."""
    made = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)).double()
    theta, _ = sim.model.init(sim.key.fold_in("model"))
    vector_to_parameters(theta.double(), made.parameters())
    return made


def samples(sim: Simulation, client: int) -> tuple[Tensor, Tensor]:
    """All samples of a client."""
    first, size = int(sim.shards.start[client]), int(sim.shards.sizes[client])
    own = sim.shards.order[first : first + size]
    return sim.dataset.normalise(sim.dataset.train.x[own]).double(), sim.dataset.train.y[own]


def training(rank: int, state: Callable[[nn.Module], ddp.HookState], hook: Any, lr: float, **options: Any) -> Iterator:
    """Yields (parameters, hook's state) after each step; parameters are rounded to float32, as a simulation's are."""
    sim = simulation()
    made = network(sim)
    kept = state(made)
    parallel = DistributedDataParallel(made, **options)
    parallel.register_comm_hook(kept, hook)
    optimizer = torch.optim.SGD(made.parameters(), lr=lr)
    x, y = samples(sim, rank)
    while True:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(parallel(x), y)
        loss.backward()
        optimizer.step()
        theta = parameters_to_vector(made.parameters()).detach().float()
        vector_to_parameters(theta.double(), made.parameters())
        yield theta, kept, loss.item()


def main(rank: int, folder: Path) -> None:
    """Train among the processes, and save what came out."""
    store = dist.FileStore(str(folder / "store"), SIZE)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=SIZE)
    torch.save(trained(rank), folder / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # without the interpreter's end, in which one of these processes was aborted once


def trained(rank: int) -> dict[str, Any]:
    """What each hook found."""
    found: dict[str, Any] = {}
    for name, options in GATHERED.items():
        coder = fc.compressor(name, **options)
        steps = training(rank, lambda model, coder=coder: ddp.HookState(model, coder, lr=LR), ddp.all_gather_hook, 1.0)
        thetas = [next(steps)[0] for _ in range(GATHERED_STEPS - 1)]
        theta, kept, loss = next(steps)
        found[name] = torch.stack([*thetas, theta]), kept.count, loss
    small = {"bucket_cap_mb": 1e-3}  # several buckets, which DDP fills anew after the first step
    coder = fc.compressor("topk", fraction=0.05, feedback="error")
    hooks = {
        "buckets": (lambda model: ddp.HookState(model, coder, lr=LR), ddp.all_gather_hook, 1.0),
        "gradients": (lambda model: ddp.HookState(model, coder), ddp.all_gather_hook, LR),
        "shared_randk": (lambda model: ddp.HookState(model, fraction=0.2), ddp.shared_randk_hook, LR),
        "powersgd": (lambda model: ddp.HookState(model, rank=2), ddp.powersgd_hook, LR),
    }
    for name, (state, hook, lr) in hooks.items():
        steps = training(rank, state, hook, lr, **(small if name != "powersgd" else {}))
        losses = [next(steps)[2] for _ in range(STEPS)]
        theta, kept, _ = next(steps)
        found[name] = theta, kept.count, losses, len(kept.codecs)
    found["resumed"] = [resumed(rank, state, hook, lr) for state, hook, lr in hooks.values()]
    return found


def resumed(rank: int, state: Callable[[nn.Module], ddp.HookState], hook: Any, lr: float) -> tuple[Tensor, Tensor]:
    """(parameters after six steps, the same with a new hook from the state of the old one after three)."""
    steps = training(rank, state, hook, lr)
    for _ in range(3):
        theta, kept, _ = next(steps)
    saved, start = kept.state_dict(), theta.clone()
    whole = [next(steps)[0] for _ in range(3)][-1]

    def again(model: nn.Module) -> ddp.HookState:
        vector_to_parameters(start.double(), model.parameters())
        made = state(model)
        made.load_state_dict(saved)
        return made

    steps = training(rank, again, hook, lr)
    return whole, [next(steps)[0] for _ in range(3)][-1]
