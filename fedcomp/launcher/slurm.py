"""Runs as one job array of Slurm, through submitit; `runs_per_gpu` of them packed into each of its jobs.

A job is a small supervisor (`Pack`) with its runs as processes. When Slurm warns of the time limit or of preemption
(SIGUSR2), each run saves its state and leaves; then submitit's own handler requeues the job, and the runs resume from
their checkpoints. A run that fails or is killed ends neither its job's other runs nor the array.

A run of several processes (`processes_per_run`) is a torchrun on each node of its job (`torchrun_group.py`). Then each
node has a supervisor, all of them get the signals, and that of task 0 requeues the job.
"""

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from fedcomp.core.ranges import CheckedOptions, Whole, Within
from fedcomp.display.console import say
from fedcomp.display.units import counted
from fedcomp.launcher.contract import GridRun, RunHere, RunOutcome, outcome
from fedcomp.launcher.process import Children, Tally, python_path
from fedcomp.launcher.slurm_jobs import AskedJobs, Job, job_states
from fedcomp.launcher.torchrun_group import TorchrunGroup, slurm_task
from fedcomp.records.grid import note_jobs, noted_jobs
from fedcomp.records.status import read_status

POLL_SECONDS = 1.0
REQUEUE_SECONDS = 60.0
"""How long other tasks wait until task 0 has requeued the job, which ends them: a task that exits may end the job."""
MAX_ARRAY = 1000  # Slurm's MaxArraySize is 1001 unless a cluster sets another


Count = Annotated[int, Whole()]


@dataclass(frozen=True)
class Slurm(CheckedOptions):
    """Submits, waits, and prints what became of each run. `conf/launcher/slurm.yaml` explains the options.

    Attributes:
        max_num_timeout: requeues because of the time limit (preemption is not counted).
        signal_delay_s: seconds before the time limit at which runs are signalled to save; they have half of it.
        cpus, mem_gb: of one process of a run; a job asks for `runs_per_gpu` times as much, for all its processes.
        gpus: None: one for each process of a run, if the partition has any and the run does not ask for device=cpu.
    """

    prefix: ClassVar[str] = "launcher."
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    timeout_min: Count = 240
    max_num_timeout: Annotated[int, Whole(0)] = 20
    signal_delay_s: Count = 120
    cpus: Count = 2
    mem_gb: Annotated[float, Within("(0, inf)")] = 4
    gpus: Annotated[int | None, Whole(0)] = None
    processes_per_run: Count = 1
    nodes: Count = 1
    runs_per_gpu: Count = 1
    array_parallelism: Count = 256
    name: str = "fedcomp"
    setup: Sequence[str] = ()
    sbatch: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.processes_per_run % self.nodes:
            raise ValueError(
                f"launcher.processes_per_run={self.processes_per_run} must be a multiple of launcher.nodes={self.nodes}"
            )

    @property
    def _per_node(self) -> int:
        """Processes of a run on each node."""
        return self.processes_per_run // self.nodes

    def place(self, device: str, threads: int | None) -> Mapping[str, str | int]:
        """Device and threads of the jobs; the machine that submits may have another device."""
        _submitit()
        if device == "auto":
            device = "cuda" if self._num_gpus(device) else "cpu"
        return {"device": device, "threads": threads or self.cpus}

    def launch(self, runs: Sequence[GridRun], grid: Path, here: RunHere) -> list[RunOutcome]:
        """Submit what is no job already, and wait for all. Ctrl-C leaves the jobs running, and a line says so.

        Raises ValueError: no submitit, no Slurm, or sbatch refuses.
        """
        queued = _queued(runs, grid.parent)
        old = [job.name for job in queued.values()]
        new = [run for run in runs if run.folder not in queued]
        packs = [new[start : start + self.runs_per_gpu] for start in range(0, len(new), self.runs_per_gpu)]
        arrays = [packs[start : start + MAX_ARRAY] for start in range(0, len(packs), MAX_ARRAY)]
        jobs = [job for array in arrays for job in self._submit(array, grid)]
        note_jobs(grid, {run.folder: str(job.job_id) for job, pack in zip(jobs, packs) for run in pack})
        told = not all(run.quiet for run in runs)
        if queued and told:
            say(f"{len(queued)} of {counted(len(runs), 'run')} are jobs of Slurm already, {_arrays(old)}")
        if new and told:
            ids = _arrays(str(job.job_id) for job in jobs)
            say(f"{counted(len(new), 'run')} as {counted(len(jobs), 'job')} of Slurm, {ids}; their logs are in {grid}")
        tally = Tally(len(runs))
        ended: dict[Path, RunOutcome] = {}
        waiting: list[tuple[str, Any, Sequence[GridRun]]]
        waiting = [(str(job.job_id), job, pack) for job, pack in zip(jobs, packs)]
        waiting += [(queued[run.folder].name, None, [run]) for run in runs if run.folder in queued]
        asked = AskedJobs((name for name, _, _ in waiting), queued.values())
        try:
            while len(ended) < len(runs):
                for name, job, pack in waiting:
                    if pack[0].folder not in ended and (codes := self._codes(job, pack, asked.get(name))) is not None:
                        ended |= {run.folder: tally.add(outcome(run, code)) for run, code in zip(pack, codes)}
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            ids, place = _arrays(name for name, _, _ in waiting), shlex.quote(str(grid.parents[1]))
            say(f"the jobs go on: `fedcomp-status {place}` shows them, `scancel {ids}` ends them")
            raise SystemExit(128 + signal.SIGINT) from None
        return [ended[run.folder] for run in runs]

    def _codes(self, job: Any, pack: Sequence[GridRun], state: Job | None) -> Sequence[int | None] | None:
        """The exit codes of a job's runs (each None: unknown); None: it has not ended.

        Args:
            job: as submitit knows it; None: an earlier command has submitted it.
            state: as Slurm knows it. Submitit never sees that one was cancelled before its turn.
        """
        if state is not None and state.cancelled:
            return [-signal.SIGTERM] * len(pack)
        if job is None:
            return None if state is not None and (state.pending or state.active) else [None] * len(pack)
        if not job.done():
            return None
        try:
            tasks = job.results() if self.nodes > 1 else [job.result()]
            return [next((code for code in own if code), 0) for own in zip(*tasks)]
        except Exception:  # submitit raises what it finds: killed, cancelled, given up; the run's status says more
            return [-signal.SIGTERM if job.state.startswith("CANCELLED") else None] * len(pack)

    def _submit(self, packs: Sequence[Sequence[GridRun]], grid: Path) -> list[Any]:
        submitit = _submitit()
        packed = len(packs[0])
        executor = submitit.SlurmExecutor(folder=grid / "slurm" / "%j", max_num_timeout=self.max_num_timeout)
        options = {
            "job_name": self.name,
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "constraint": self.constraint,
            "time": self.timeout_min,
            "signal_delay_s": self.signal_delay_s,
            "nodes": self.nodes if self.nodes > 1 else None,
            "ntasks_per_node": 1 if self.nodes > 1 else None,
            "cpus_per_task": self.cpus * packed * self._per_node,
            "mem": f"{round(1024 * self.mem_gb * packed * self._per_node)}M",
            "gpus_per_node": self._num_gpus(packs[0][0].device) or None,
            "array_parallelism": self.array_parallelism,
            "setup": [f"export PYTHONPATH={shlex.quote(python_path())}", *self.setup],
            "additional_parameters": dict(map(_option, self.sbatch)) or None,
        }
        executor.update_parameters(**{name: value for name, value in options.items() if value is not None})
        try:
            return executor.map_array(Pack(self.signal_delay_s / 2, self.processes_per_run), packs)
        except submitit.core.utils.FailedJobError as error:
            reason = next((line for line in reversed(str(error).splitlines()) if "error" in line), str(error))
            raise ValueError(f"sbatch refuses: {reason.removeprefix('sbatch: error: ')}; see launcher.*") from error

    def _num_gpus(self, device: str) -> int:
        """GPUs that a job asks for."""
        if self.gpus is not None:
            return self.gpus
        return self._per_node * int(device != "cpu" and (device != "auto" or self._has_gpus()))

    def _has_gpus(self) -> bool:
        where = ["-p", self.partition] if self.partition else []
        found = subprocess.run(["sinfo", "-h", "-o", "%G", *where], capture_output=True, text=True)
        if found.returncode:
            reason = (found.stderr.strip() or "no answer").splitlines()[-1]
            raise ValueError(f"launcher=slurm: Slurm does not answer here ({reason}); take launcher=joblib")
        return "gpu" in found.stdout


@dataclass(frozen=True)
class Pack:
    """What each task of a job of the array does.

    Attributes:
        grace: seconds that runs have to save their state. processes: of each run, in all tasks together.
    """

    grace: float
    processes: int = 1

    def __call__(self, runs: Sequence[GridRun]) -> list[int]:
        """Run all at once and wait. Returns their exit codes; exits as submitit does if the job is to be requeued."""
        from joblib import Parallel, delayed

        with Children(self.grace) as children:
            codes = Parallel(n_jobs=len(runs), prefer="threads")(delayed(self._run)(children, run) for run in runs)
        if children.signal_received in (signal.SIGUSR1, signal.SIGUSR2):
            signal.raise_signal(children.signal_received)  # submitit's handler is back: it requeues the job and exits
            time.sleep(REQUEUE_SECONDS)  # in tasks other than 0 the handler returns: wait for task 0's requeue
        if children.signal_received is not None:  # no result: Slurm knows whether the job was cancelled or preempted
            raise SystemExit(128 + children.signal_received)
        return list(codes)

    def _run(self, children: Children, run: GridRun) -> int:
        """The exit code of a run, or of this task's part of its processes."""
        if self.processes == 1:
            return children.run(run)
        group = TorchrunGroup(self.processes, slurm_task())
        try:
            part = group.part(run, lambda: children.signal_received is not None)
        except ValueError as error:
            say(f"error: {error}")
            return 1
        try:
            return children.run(part, group.environment(self.grace))
        finally:
            group.ended(run)

    def checkpoint(self, runs: Sequence[GridRun]) -> Any:
        """What submitit requeues: the same runs, which resume from their own checkpoints."""
        return _submitit().helpers.DelayedSubmission(self, runs)


def _option(text: str) -> tuple[str, str | bool]:
    """Name and value of an option of sbatch; it replaces what the launcher itself gives under this name."""
    name, given, value = text.lstrip("-").partition("=")
    return name.replace("-", "_"), value if given else True


def _queued(runs: Sequence[GridRun], grids: Path) -> dict[Path, Job]:
    """{folder: job} of the runs that an earlier command has submitted and that Slurm still has.

    Args:
        grids: the folder of this name's grids.
    """
    folders = {run.folder.resolve(): run.folder for run in runs}
    noted = [one for path in sorted(grids.glob("*")) for one in noted_jobs(path) if one[0] in folders]
    states = job_states(name for _, name in noted).jobs
    found = {}
    for folder, name in noted:
        job = states.get(name)
        if job is not None and (job.pending or (job.active and not _failed(folder))):
            found[folders[folder]] = job
    return found


def _failed(folder: Path) -> bool:
    """Whether a run has failed, while others of its job go on."""
    status = read_status(folder)
    return status is not None and status.state == "failed"


def _arrays(names: Iterable[str]) -> str:
    """The jobs and arrays of these, each once, as scancel takes them."""
    return " ".join(dict.fromkeys(name.partition("_")[0] for name in names))


def _submitit() -> Any:
    try:
        import submitit
    except ImportError as error:
        raise ValueError("launcher=slurm needs submitit: pip install 'fedcomp[grids]'") from error
    if shutil.which("sbatch", path=os.environ.get("PATH")) is None:
        raise ValueError("launcher=slurm: there is no sbatch here; submit from a login node, or take launcher=joblib")
    return submitit
