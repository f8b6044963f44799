"""Asks Slurm, if it is installed, about jobs: `squeue` once for all, then `sacct` for those that `squeue` forgot."""

import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

SECONDS = 10.0
"""How long `squeue` and `sacct` may take, each."""
ASK_SECONDS = 30.0

PENDING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
ACTIVE = frozenset(
    {"RUNNING", "CONFIGURING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED"}
)


@dataclass(frozen=True)
class Job:
    """One job, or one task of an array.

    Attributes:
        name: `123` or `123_4`. state: as Slurm calls it. start: of the job, or of its last requeue; None: not yet.
    """

    name: str
    state: str
    start: datetime | None = None

    @property
    def pending(self) -> bool:
        """Whether it is queued."""
        return self.state in PENDING

    @property
    def active(self) -> bool:
        """Whether it has a machine."""
        return self.state in ACTIVE

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled, perhaps before its turn."""
        return self.state == "CANCELLED"


@dataclass(frozen=True)
class JobStates:
    """What Slurm knows of some jobs, by name; `problem`: one line, if it is there and does not answer."""

    jobs: dict[str, Job] = field(default_factory=dict)
    problem: str | None = None


def job_states(names: Iterable[str]) -> JobStates:
    """The state of these jobs; of none if Slurm is not installed. Never raises, and returns after a time limit."""
    wanted = sorted(set(names))
    if not wanted or shutil.which("squeue") is None:
        return JobStates()
    ids = ",".join(sorted({name.partition("_")[0] for name in wanted}))
    code, output = _run("squeue", "--noheader", "--array", "--states=all", "--format=%i|%T|%S", f"--jobs={ids}")
    if code and "Invalid job id" not in output:  # its answer if it has forgotten all of them
        return JobStates(problem=f"Slurm does not answer, so waiting jobs are not shown: squeue: {_last_line(output)}")
    jobs = _parse(output)
    if any(name not in jobs for name in wanted) and shutil.which("sacct") is not None:
        fields = "--format=JobID,State,Start"
        code, output = _run("sacct", "--allocations", "--noheader", "--parsable2", fields, f"--jobs={ids}")
        if code == 0:  # else there is no accounting, and the runs' own files decide
            jobs = _parse(output) | jobs
            arrays = {name.partition("_")[0] for name in jobs if "_" in name}
            for name in wanted:  # Slurm forgets a task that is cancelled before its turn, but not the array
                if name not in jobs and "_" in name and name.partition("_")[0] in arrays:
                    jobs[name] = Job(name, "CANCELLED")
    return JobStates({name: jobs[name] for name in wanted if name in jobs})


class AskedJobs:
    """What Slurm last said of some jobs; it is asked again after `ASK_SECONDS`."""

    def __init__(self, names: Iterable[str], known: Iterable[Job]) -> None:
        """`known`: those of them whose state is known already."""
        self._names, self._jobs, self._due = set(names), {job.name: job for job in known}, 0.0

    def get(self, name: str) -> Job | None:
        """A job of these; None: Slurm does not know it, or has not answered about it yet."""
        if time.monotonic() >= self._due:
            answer = job_states(self._names)
            self._jobs = self._jobs if answer.problem else answer.jobs
            self._due = time.monotonic() + ASK_SECONDS
        return self._jobs.get(name)


def _run(*command: str) -> tuple[int, str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return 1, f"no answer in {SECONDS:g} s"
    except OSError as error:
        return 1, str(error.strerror)
    return done.returncode, done.stdout if done.returncode == 0 else f"{done.stdout}{done.stderr}"


def _last_line(output: str) -> str:
    return next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "no output")


def _parse(output: str) -> dict[str, Job]:
    """Lines of `name|state|start`; of a job that has several, the last counts."""
    jobs = {}
    for line in output.splitlines():
        words = line.strip().split("|")
        if len(words) == 3 and words[1]:
            jobs[words[0]] = Job(words[0], words[1].split()[0].rstrip("+"), _time(words[2]))  # CANCELLED by 1000
    return jobs


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:  # N/A, Unknown, None
        return None
