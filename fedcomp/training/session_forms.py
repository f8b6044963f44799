"""What a run knows about its accelerated forms, from session to session, and alike in all its processes."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fedcomp.core.accelerated import AGREES, FILE, Verdicts, judge, judged_by
from fedcomp.core.cohort import Cohort
from fedcomp.distributed.context import ProcessContext
from fedcomp.model.contract import TaskModel
from fedcomp.provenance.machine import device_versions, gpu_in_words, processor, versions
from fedcomp.random.keys import Key
from fedcomp.records.atomic_write import write_atomically
from fedcomp.runtime.workers import ProcessGroup
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger


@contextlib.contextmanager
def forms_of_run(safe: bool, device: torch.device, folder: Path, processes: ProcessContext) -> Iterator[None]:
    """Context manager: this process's accelerated forms are judged by the run, and the main process keeps the verdicts.

    A resumed run knows what its earlier sessions found, and all processes what the main one knows at the start. They
    find the same later: forms that agree but for rounding prove themselves before several processes share the rounds.

    Args:
        safe: no accelerated form is used. folder: of the run.
    """
    path = folder / FILE
    verdicts = Verdicts(safe, f"{processor(device)}, {versions() | device_versions(device)}")
    if processes.is_main_process and path.exists():
        try:
            verdicts.restore(path.read_bytes())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is damaged: remove it, and the run tries its accelerated forms again") from error
    verdicts.found = processes.broadcast_object(verdicts.found)
    if processes.is_main_process and not safe:
        verdicts.keep = lambda: write_atomically(path, verdicts.dump())
    with judged_by(verdicts):
        yield


def rehearse(simulation: Simulation, processes: ProcessContext) -> None:
    """The main process trains two clients, and all take what it finds: no process may round otherwise than another."""
    if processes.size == 1 or isinstance(simulation.model, TaskModel) or simulation.algorithm.solver is None:
        return
    if processes.is_main_process:
        solver, sizes = simulation.algorithm.solver, simulation.shards.sizes
        two = sorted(int(client) for client in np.argsort(-sizes, kind="stable")[:2])
        cohort = Cohort.of(two, torch.ones(len(two))).to(simulation.device)
        alone = replace(simulation, group=ProcessGroup())
        rows = (part.to(simulation.device).expand(len(two), -1) for part in simulation.model.init(Key(("rehearsal",))))
        clients = alone.clients(Key(("rehearsal",)), Ledger())
        progress = 0, simulation.rounds
        clients.map_clients(lambda data, theta, stats: solver.run(data, theta, stats, progress), cohort, *rows)
    judge().found = processes.broadcast_object(judge().found)


def where_in_words(simulation: Simulation, precision: str) -> str:
    """Where a run computes, for its user: device, memory, driver, precision, accelerated forms."""
    device, verdicts = simulation.device, judge()
    threads = "1 thread" if simulation.workers.num == 1 else f"{simulation.workers.num} threads"
    machine = gpu_in_words(device) if device.type == "cuda" else f"{processor(device)}, {threads}"
    refused = ", ".join(name for name, verdict in verdicts.found.items() if verdict != AGREES)
    forms = (
        "no accelerated forms (safe=true)" if verdicts.safe else "accelerated forms" + f" but {refused}" * bool(refused)
    )
    return f"on {device}: {machine}, {precision}, {forms}"
