"""Several runs at once on this machine, each in a process of its own.

joblib schedules; the processes are ours, and on a CPU they are forked by workers that have imported torch once
(`worker.py`). Hydra's own joblib launcher runs in its workers themselves: the death of one (out of memory, SIGKILL)
ends all the others and the grid with them.
"""

import os
import queue
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from fedcomp.core.ranges import CheckedOptions, Whole
from fedcomp.display import units
from fedcomp.display.console import say
from fedcomp.launcher.contract import GridRun, RunHere, RunOutcome, outcome
from fedcomp.launcher.process import Children, Tally
from fedcomp.launcher.worker_pool import WorkerPool
from fedcomp.runtime.cores import num_cores
from fedcomp.runtime.device_name import device_name


@dataclass(frozen=True)
class Joblib(CheckedOptions):
    """Runs `n_jobs` runs at once; on GPUs `runs_per_gpu` on each that is visible.

    Attributes: n_jobs: -1: one for each core, -2: one less, and so on, as joblib counts.
    """

    prefix: ClassVar[str] = "launcher."
    processes_per_run: ClassVar[int] = 1
    n_jobs: int = -1
    runs_per_gpu: Annotated[int, Whole()] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.n_jobs, int) or self.n_jobs == 0:
            raise ValueError(f"launcher.n_jobs={self.n_jobs} must be 1 or more, or -1 for all cores")

    def place(self, device: str, threads: int | None) -> Mapping[str, str | int]:
        """The device of this machine, and a run's fraction of its cores."""
        picked = device_name(device)
        at_once = len(self._gpus(picked)) or self._at_once()
        return {"device": picked, "threads": threads or max(1, num_cores() // at_once)}

    def launch(self, runs: Sequence[GridRun], grid: Path, here: RunHere) -> list[RunOutcome]:
        """All runs, `n_jobs` at a time. On Ctrl-C each run saves its state and exits."""
        from joblib import Parallel, delayed

        slots: queue.SimpleQueue[str] = queue.SimpleQueue()
        gpus = self._gpus(runs[0].device)
        for gpu in gpus:
            slots.put(gpu)
        at_once = len(gpus) or self._at_once()
        if not all(run.quiet for run in runs):
            say(f"{units.counted(len(runs), 'run')}, {min(at_once, len(runs))} at once; their logs are in {grid}")
        tally = Tally(len(runs))
        forked = runs[0].device == "cpu"  # a process that has forked may not use CUDA if its parent has
        with WorkerPool() if forked else Children() as children:

            def run_one(run: GridRun) -> RunOutcome | None:
                gpu = slots.get() if gpus else None
                try:
                    if children.signal_received is not None:
                        return None
                    code = children.run(run, {"CUDA_VISIBLE_DEVICES": gpu} if gpu is not None else None)
                finally:
                    if gpu is not None:
                        slots.put(gpu)
                return tally.add(outcome(run, code))

            outcomes = Parallel(n_jobs=min(at_once, len(runs)), prefer="threads")(delayed(run_one)(run) for run in runs)
        if children.signal_received is not None:
            waiting = sum(one is None for one in outcomes)
            left = f", {waiting} of {len(runs)} runs not started" if waiting else ""
            say(f"interrupted{left}; the same command resumes it")
            raise SystemExit(128 + children.signal_received)
        return [one for one in outcomes if one is not None]

    def _at_once(self) -> int:
        return self.n_jobs if self.n_jobs > 0 else max(1, num_cores() + 1 + self.n_jobs)

    def _gpus(self, device: str) -> list[str]:
        """One entry a run at once: the names of the visible GPUs, each `runs_per_gpu` times; none on a CPU."""
        if device != "cuda":  # a run with cuda:<n> asks for that one and sees them all
            return []
        import torch

        names = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
        return [name for name in names.split(",") for _ in range(self.runs_per_gpu)]
