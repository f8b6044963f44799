"""One run as a group of processes, on one node or several: a torchrun on each task of the job.

Every task of a job runs the same supervisor (`slurm.py`), which starts torchrun with its share of the processes. They
meet at an address that task 0 picks and leaves in a file of the grid's folder, which all nodes share.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fedcomp.launcher.contract import GridRun
from fedcomp.records.atomic_write import write_atomically
from fedcomp.runtime.signals import SIGNALS

PATIENCE_SECONDS = 300.0
"""How long a task waits for task 0, which may start later."""


@dataclass(frozen=True)
class SlurmTask:
    """Which of a job's tasks this is.

    Attributes:
        job: its number, and how often it was requeued. rank, size: which of how many tasks.
    """

    job: str
    rank: int
    size: int


def slurm_task() -> SlurmTask:
    """As Slurm says by environment variables; outside of it the only task."""
    names = os.environ
    job = f"{names.get('SLURM_JOB_ID', os.getpid())}-{names.get('SLURM_RESTART_COUNT', '0')}"
    return SlurmTask(job, int(names.get("SLURM_PROCID", "0")), int(names.get("SLURM_NTASKS", "1")))


@dataclass(frozen=True)
class TorchrunGroup:
    """The processes of a run, in all tasks together, and which part of them is started here."""

    processes: int
    task: SlurmTask

    def part(self, run: GridRun, stopped: Callable[[], bool]) -> GridRun:
        """The run as this task starts it; its output is in a log of its own, as nodes may not append to the same file.

        Args:
            stopped: whether to give up waiting for task 0.
        Raises:
            ValueError: task 0 did not start.
        """
        host, port = self._address(self._file(run), stopped)
        program, module, name, *words = run.command
        assert (module, name) == ("-m", "fedcomp")
        place = {
            "nnodes": self.task.size,
            "nproc_per_node": self.processes // self.task.size,
            "node_rank": self.task.rank,
            "master_addr": host,
            "master_port": port,
        }
        options = [f"--{key}={value}" for key, value in place.items()]
        command = (program, "-m", "torch.distributed.run", *options, "-m", "fedcomp", *words)
        log = run.log if self.task.rank == 0 else run.log.with_suffix(f".task{self.task.rank}.log")
        return replace(run, command=command, log=log)

    def ended(self, run: GridRun) -> None:
        """Remove the file of the run's address."""
        if self.task.rank == 0:
            self._file(run).unlink(missing_ok=True)

    def environment(self, grace: float) -> Mapping[str, str]:
        """Makes torchrun pass on the signals that a run handles, and leave it `grace` seconds to save its state."""
        heard = ",".join(one.name for one in SIGNALS)
        return {"PET_SIGNALS_TO_HANDLE": heard, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(max(1, round(grace)))}

    def _file(self, run: GridRun) -> Path:
        return run.log.parent / f".meet-{self.task.job}-{run.number}.json"

    def _address(self, file: Path, stopped: Callable[[], bool]) -> tuple[str, int]:
        """Where the processes meet: task 0 picks it, the others wait for it."""
        if self.task.rank == 0:
            host = socket.gethostname() if self.task.size > 1 else "127.0.0.1"
            with socket.socket() as probe:
                probe.bind(("", 0))
                port = int(probe.getsockname()[1])
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, json.dumps([host, port]).encode())
            return host, port
        patience = time.monotonic() + PATIENCE_SECONDS
        while not file.exists():
            if stopped() or time.monotonic() > patience:
                raise ValueError(f"task {self.task.rank} of {self.task.size}: task 0 left no address in {file}")
            os.listdir(file.parent)  # a network file system looks again
            time.sleep(0.2)
        host, port = json.loads(file.read_text())
        return host, int(port)
