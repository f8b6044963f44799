"""What each of several real processes does for `test_torch_processes.py`: the work of one process, split by gloo."""

import contextlib
import io
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import flatten
from fedcomp.distributed.context import TorchrunEnv
from fedcomp.distributed.torch_processes import init_processes
from fedcomp.random.keys import Key
from fedcomp.records.checkpoint import Checkpoint
from fedcomp.simulation import evaluation
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger, Link, WireLink
from tests.algorithm.conformance_cases import CASES
from tests.conformance import world
from tests.parts import Compressor, Dense, FedAvg, ServerSgd, Sgd
from tests.simulation.user_module import Attending, Dropping, dropping_chain

ALGORITHM = FedAvg(Sgd(lr=0.1), ServerSgd(), Compressor(Dense()), Compressor(Dense()))
TREES = [(clients, chunk_size) for clients in ([4], [0, 2, 4, 5, 6], list(range(7))) for chunk_size in (1, 2, 100)]
SMALL = ("rounds=4", "num_clients=9", "eval_every=2", "pictures=false", "threads=1")
RUN = (*SMALL, "chunk_size=2", "partition=dirichlet")
APART = ("repeats=3", "wire=packed")  # so that repetitions go one after another
SOME = ("participation=bernoulli", "participation.probability=0.2")
REPEATED = (*RUN, *APART, *SOME, "compressor=topk", "compressor.feedback=error", "server=adam")

# Repetitions that vmap refuses, which the process without clients does not see; in some rounds all take part.
MOST = ("participation=bernoulli", "participation.probability=0.9")
REFUSED = ("rounds=3", "num_clients=9", "pictures=false", "threads=1", "repeats=3", "algorithm=scaffold", *MOST)


@dataclass(frozen=True)
class Pair:
    left: Tensor
    right: Any


def every_dtype(data: Any, row: Tensor) -> Any:
    """A tree with all dtypes that a method may return; its values tell whose they are."""
    ids = data.ids
    number, wide = ids[:, None] * 10 + torch.arange(3), (row * 1.1).double()
    odd = (ids[:, None] * torch.arange(5)) % 2 == 1
    nothing = row.new_empty(len(ids), 0)
    deep = row[:, None, :].expand(-1, 2, -1).transpose(1, 2)  # neither contiguous nor flat
    return Pair(
        row * 1.1, (number, Pair(odd, (ids.to(torch.uint8), ids.to(torch.int32), wide)), nothing, deep, row.half())
    )


def of_trees(share: Any) -> dict[str, Any]:
    """Results of `Clients.map_clients` for cohorts that are fewer chunks than processes, and more."""
    found = {}
    for clients, chunk_size in TREES:
        sim = share(world.simulation(ALGORITHM, chunk_size=chunk_size))
        executor = sim.clients(Key(("round", 0)), Ledger())
        rows = torch.arange(len(clients) * 2.0).view(-1, 2)
        tree = executor.map_clients(every_dtype, Cohort.of(clients, torch.ones(len(clients))), rows)
        found |= {f"{clients} {chunk_size} {name}": tensor for name, tensor in flatten(tree).items()}
    return found


def of_runs(share: Any, half: int) -> dict[str, Any]:
    """State, ledger, metrics and evaluation of every second method of the suite, counted and through bytes."""
    found: dict[str, Any] = {}
    for case in CASES[half::2]:
        for link, num_rounds in ((Link, 2), (WireLink, 1)):
            sim: Simulation = share(case.simulation(chunk_size=2, link=link))
            state, ledger = sim.init(), Ledger()
            for index in range(num_rounds):
                state, result = sim.round(index, state, ledger)
            name = f"{case.name} {link.__name__}"
            found |= {f"{name} {path}": tensor for path, tensor in flatten(state).items()}
            found |= {f"{name} {metric}": value for metric, value in result.metrics.items()}
            found[f"{name} ledger"] = ledger.counters()
            found[f"{name} evaluation"] = sim.test_metrics(sim.rounds, state)
    return found


def of_dropout(share: Any) -> dict[str, Any]:
    """Models of networks with dropout after two rounds: masks follow the client, not its process."""
    found: dict[str, Any] = {}
    for module in (dropping_chain, Dropping, Attending):
        sim: Simulation = share(world.simulation(ALGORITHM, module, chunk_size=1))
        assert sim.model.draws_in_training
        found[f"dropout {module.__name__}"] = world.run(sim, last=2).theta
    return found


def _alone(sim: Simulation) -> Simulation:
    return sim


def measured(size: int, share: Any = _alone) -> dict[str, Any]:
    """What must be the same with one process and with `size`: of all methods by two and three processes together."""
    before, evaluation.BATCH = evaluation.BATCH, 9  # 40 test samples: the last of five batches is smaller
    try:
        return of_trees(share) | of_dropout(share) | of_runs(share, size % 2)
    finally:
        evaluation.BATCH = before


def _enter(rank: int, size: int, port: int) -> TorchrunEnv:
    torch.set_num_threads(1)
    names = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {name: str(value) for name, value in names.items()} | {"MASTER_PORT": str(port)}
    return TorchrunEnv(rank, size, rank, size)


def measure(rank: int, size: int, ports: tuple[int, ...], folder: Path) -> None:
    """One process: leaves `<rank>.pt` with what `measured` finds of the work that it shares."""
    with init_processes(_enter(rank, size, ports[0])) as processes:
        found = measured(size, lambda sim: processes.distribute(sim, sim.chunk_size, 1))
    torch.save(found, folder / f"{rank}.pt")


def work(rank: int, size: int, ports: tuple[int, ...], folder: Path) -> None:
    """One process: leaves `<rank>.pt` with what all agreed on, then makes runs and a study from the command line."""
    with init_processes(_enter(rank, size, ports[0])) as processes:
        theirs = {
            "agreed": processes.all_reduce_flags(15 if rank == 1 else None, due=rank == 0),
            "quiet": processes.all_reduce_flags(None, rank > 0),
        }
        theirs["told"] = processes.broadcast_object(f"by {rank}")
        state = Pair(torch.full((3, 2), float(rank)), torch.tensor([True, rank > 0]))
        start = processes.broadcast_checkpoint(Checkpoint(rank + 1, state, {"rounds": rank}, 2.0 * rank))
        theirs["start"] = start.round, start.state, start.ledger, start.seconds
        processes.check_in_sync(start.state)
        one = start.state.left.clone()
        one[2, 1] += 2**-149 if rank == 1 else 0  # the least bit there is
        try:
            processes.check_in_sync(Pair(one, start.state.right))
        except ValueError as error:
            theirs["differ"] = str(error)
    torch.save(theirs, folder / f"{rank}.pt")

    from fedcomp.cli.main import main

    heard = io.StringIO()
    for port, name, words in zip(ports[1:], ("run", "study", "refused"), (RUN, REPEATED, REFUSED)):
        os.environ["MASTER_PORT"] = str(port)
        with contextlib.redirect_stderr(heard):
            sys.argv = ["fedcomp", *words, f"output_root={folder / name}"]
            main()
    (folder / f"{rank}.said").write_text(heard.getvalue())
