"""What the Slurm launcher asks submitit for, how jobs of packed runs and of several processes run and end.

A real Slurm: tests/launcher/slurm."""

import functools
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedcomp.launcher import slurm, slurm_jobs
from fedcomp.launcher.contract import GridRun, last_line, outcome
from fedcomp.launcher.slurm import Pack, Slurm
from fedcomp.launcher.slurm_jobs import Job, JobStates
from fedcomp.launcher.torchrun_group import SlurmTask, TorchrunGroup, slurm_task
from fedcomp.records.grid import note_jobs
from fedcomp.records.status import Status, write_status

LEAVES = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
    "print('ready', flush=True); time.sleep(60)"
)


class Executor:
    """A submitit that has seen every run to its end at once; keeps what it was asked for."""

    made: "list[Executor]"

    def __init__(self, folder: Path, max_num_timeout: int) -> None:
        self.folder, self.max_num_timeout = folder, max_num_timeout
        self.options: dict[str, Any] = {}
        Executor.made.append(self)

    def update_parameters(self, **options: Any) -> None:
        self.options = options

    def map_array(self, pack: Pack, packs: list[list[GridRun]]) -> list[Any]:
        self.pack, self.packs = pack, packs
        for runs in packs:
            for run in runs:
                run.folder.mkdir(exist_ok=True)
                write_status(run.folder, Status("finished", 1))
        done = {f"7_{index}": [0] * len(runs) for index, runs in enumerate(packs)}
        job = functools.partial(SimpleNamespace, done=lambda: True, state="COMPLETED")
        return [job(job_id=name, result=lambda codes=codes: codes) for name, codes in done.items()]


@pytest.fixture
def submitit(monkeypatch) -> Any:
    """In place of submitit, and of the wait between two looks."""
    Executor.made = []
    helpers = SimpleNamespace(DelayedSubmission=lambda *arguments: arguments)
    fake = SimpleNamespace(SlurmExecutor=Executor, helpers=helpers)
    monkeypatch.setattr(slurm, "_submitit", lambda: fake)
    monkeypatch.setattr(slurm, "POLL_SECONDS", 0)
    return fake


def _runs(tmp_path: Path, num: int, code: str = "pass") -> list[GridRun]:
    command = (sys.executable, "-c", code, "device=cpu")
    places = [(tmp_path / f"r{index}", tmp_path / f"{index}.log") for index in range(num)]
    return [GridRun(index, (f"seed={index}",), command, *place) for index, place in enumerate(places)]


def test_a_job_asks_for_what_its_runs_need_together(submitit, tmp_path: Path) -> None:
    runs = _runs(tmp_path, 5)
    launcher = Slurm(cpus=3, mem_gb=1.5, runs_per_gpu=2, signal_delay_s=40, timeout_min=7, sbatch=["begin=now", "--x"])
    outcomes = launcher.launch(runs, tmp_path / "grids" / "one" / "grid", lambda run: None)
    assert [(one.run, one.error) for one in outcomes] == [(run, None) for run in runs]
    (executor,) = Executor.made
    assert executor.packs == [runs[:2], runs[2:4], runs[4:]]
    assert executor.pack == Pack(grace=20)
    options = executor.options
    assert (options["cpus_per_task"], options["mem"]) == (6, "3072M")
    assert (options["time"], options["signal_delay_s"]) == (7, 40)
    assert options["additional_parameters"] == {"begin": "now", "x": True}
    assert not {"partition", "gpus_per_node"} & options.keys()


def test_arrays_are_as_long_as_slurm_takes_them(submitit, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(slurm, "MAX_ARRAY", 2)
    assert len(Slurm().launch(_runs(tmp_path, 5), tmp_path / "a" / "b" / "c", lambda run: None)) == 5
    assert [len(executor.packs) for executor in Executor.made] == [2, 2, 1]


def _says(monkeypatch, states: dict[str, str]) -> None:
    """Let Slurm say this of jobs, whenever it is asked."""
    monkeypatch.setattr(slurm_jobs, "ASK_SECONDS", 0)
    for module in (slurm, slurm_jobs):
        jobs = lambda names: JobStates({name: Job(name, state) for name, state in states.items()})  # noqa: E731
        monkeypatch.setattr(module, "job_states", jobs)


def test_runs_that_are_jobs_already_are_waited_for(submitit, monkeypatch, tmp_path: Path, capsys) -> None:
    """Else a grid that is given again after Ctrl-C runs twice, and a run fails that finds its folder held."""
    runs, grids = _runs(tmp_path, 4), tmp_path / "grids"
    running, _, failed, _ = runs
    note_jobs(grids / "first", {run.folder: f"3_{run.number}" for run in runs})
    for run, state in ((running, "running"), (failed, "failed")):
        run.folder.mkdir()
        write_status(run.folder, Status(state, 1))
    states = {"3_0": "RUNNING", "3_1": "PENDING", "3_2": "RUNNING", "3_3": "COMPLETED"}
    _says(monkeypatch, states)

    def sleep(seconds: float) -> None:
        if states.pop("3_0", None):
            write_status(running.folder, Status("finished", 1))
        else:
            states["3_1"] = "CANCELLED"

    monkeypatch.setattr(slurm, "time", SimpleNamespace(sleep=sleep))
    ended = Slurm().launch(runs, grids / "second", lambda run: None)
    (executor,) = Executor.made
    assert [run for pack in executor.packs for run in pack] == [failed, runs[3]]
    assert [one.run for one in ended] == runs
    assert [one.error for one in ended] == [None, "interrupted before it could save a state", None, None]
    assert "2 of 4 runs are jobs of Slurm already, 3" in capsys.readouterr().err


def test_a_job_is_what_it_was_until_slurm_answers(monkeypatch) -> None:
    """Else a run that is a job already would be told as ended when Slurm is busy."""
    answers = iter([JobStates(problem="squeue: timed out"), JobStates()])
    monkeypatch.setattr(slurm_jobs, "ASK_SECONDS", 0)
    monkeypatch.setattr(slurm_jobs, "job_states", lambda names: next(answers))
    running = Job("3_0", "RUNNING")
    asked = slurm_jobs.AskedJobs(["3_0"], [running])
    assert [asked.get("3_0"), asked.get("3_0")] == [running, None]


def test_jobs_that_are_cancelled_have_ended(submitit, monkeypatch, tmp_path: Path) -> None:
    """Submitit waits for ever for one that had not begun, and 15 seconds for the result of every other."""
    begun, waiting, finished, seen = _runs(tmp_path, 4)
    done = SimpleNamespace(job_id="7_2", done=lambda: True, result=lambda: [0])
    seen_first = SimpleNamespace(job_id="7_3", done=lambda: True, state="CANCELLED by 0")  # by submitit
    asked = [SimpleNamespace(job_id=f"7_{index}", done=lambda: False) for index in range(2)]

    def map_array(pack: Pack, packs: list[list[GridRun]]) -> list[Any]:
        for run, state in ((begun, "interrupted"), (finished, "finished")):
            run.folder.mkdir()
            write_status(run.folder, Status(state, 1, "state saved"))
        return [*asked, done, seen_first]

    _says(monkeypatch, {"7_0": "CANCELLED", "7_1": "CANCELLED"})
    monkeypatch.setattr(Executor, "map_array", lambda self, *arguments: map_array(*arguments))
    ended = Slurm().launch([begun, waiting, finished, seen], tmp_path / "a" / "b" / "c", lambda run: None)
    lost = ("interrupted before it could save a state", True)
    assert [(one.error, one.interrupted) for one in ended] == [("state saved", True), lost, (None, False), lost]


def test_what_is_requeued_are_all_its_runs(submitit, tmp_path: Path) -> None:
    pack, runs = Pack(grace=1), _runs(tmp_path, 3)
    assert pack.checkpoint(runs) == (pack, runs)


def test_a_job_that_is_ended_has_no_result(tmp_path: Path) -> None:
    """scancel sends SIGTERM: runs save and leave, nothing is requeued, and no codes are taken for results."""
    (run,) = _runs(tmp_path, 1, LEAVES)

    def end() -> None:
        while last_line(run.log) != "ready":
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=end)
    thread.start()
    with pytest.raises(SystemExit) as ended:
        Pack(grace=30)([run])
    thread.join()
    assert ended.value.code == 128 + signal.SIGTERM


def test_processes_are_spread_evenly_over_nodes() -> None:
    with pytest.raises(ValueError, match="processes_per_run=3 must be a multiple of launcher.nodes=2"):
        Slurm(processes_per_run=3, nodes=2)


def _run(folder: Path, number: int = 3) -> GridRun:
    command = (sys.executable, "-m", "fedcomp", "seed=3", "device=cpu", "hydra.mode=RUN")
    return GridRun(number, ("seed=3",), command, folder / "run", folder / "grid" / f"{number}.log")


def test_all_tasks_meet_where_the_first_says(tmp_path: Path) -> None:
    """Also where the others come first; and two runs of a job meet at two ports."""
    runs = _run(tmp_path), _run(tmp_path, 4)
    groups = [TorchrunGroup(6, SlurmTask("17-0", rank, 2)) for rank in (0, 1)]
    (tmp_path / "grid").mkdir()
    found = {}
    for run in runs:
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(groups[1].part, run, lambda: False)
            first = groups[0].part(run, lambda: False)
            found[run.number] = first, late.result(timeout=20)
    for run in runs:
        first, other = found[run.number]
        assert first.command[:3] == (sys.executable, "-m", "torch.distributed.run")
        assert first.command[-5:] == other.command[-5:] == run.command[1:]
        assert {"--nnodes=2", "--nproc_per_node=3", "--node_rank=0"} <= set(first.command)
        assert {word for word in first.command if word not in other.command} == {"--node_rank=0"}
        assert (first.log.name, other.log.name) == (f"{run.number}.log", f"{run.number}.task1.log")
        assert first.folder == run.folder
    ports = [next(word for word in found[number][0].command if "master_port" in word) for number in (3, 4)]
    assert len(set(ports)) == 2
    for run in runs:
        groups[1].ended(run)
        assert (tmp_path / "grid" / f".meet-17-0-{run.number}.json").exists()
        groups[0].ended(run)
    assert not list((tmp_path / "grid").iterdir())


def test_a_task_that_is_stopped_does_not_wait(tmp_path: Path) -> None:
    (tmp_path / "grid").mkdir()
    (tmp_path / "grid" / ".meet-17-0-3.json").write_text("[]")  # of the job before it was requeued
    group = TorchrunGroup(2, SlurmTask("17-1", 1, 2))
    with pytest.raises(ValueError, match="task 1 of 2: task 0 left no address in .*meet-17-1-3.json"):
        group.part(_run(tmp_path), lambda: True)


def test_the_task_is_what_slurm_says(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"SLURM_JOB_ID": "9", "SLURM_RESTART_COUNT": "2", "SLURM_PROCID": "1", "SLURM_NTASKS": "4"}
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert slurm_task() == SlurmTask("9-2", 1, 4)


def test_torchrun_passes_on_slurms_warning() -> None:
    given = TorchrunGroup(2, SlurmTask("1-0", 0, 1)).environment(60.0)
    assert "SIGUSR2" in given["PET_SIGNALS_TO_HANDLE"].split(",")
    assert given["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == "60"


def test_a_job_asks_for_all_processes(submitit, tmp_path: Path) -> None:
    runs = _runs(tmp_path, 2)
    launcher = Slurm(cpus=3, mem_gb=1, runs_per_gpu=2, processes_per_run=8, nodes=2, gpus=None, sbatch=["nodes=1"])
    assert launcher._num_gpus("cuda") == 4
    launcher.launch(runs, tmp_path / "a" / "b" / "c", lambda run: None)
    (executor,) = Executor.made
    assert executor.pack == Pack(grace=60, processes=8)
    options = executor.options
    assert (options["nodes"], options["ntasks_per_node"]) == (2, 1)
    assert (options["cpus_per_task"], options["mem"]) == (24, "8192M")
    assert options["additional_parameters"] == {"nodes": "1"}


def test_a_run_failed_if_a_part_of_it_did(tmp_path: Path) -> None:
    runs = _runs(tmp_path, 3)
    for run in runs:
        run.folder.mkdir()
        write_status(run.folder, Status("finished", 1))
    job = SimpleNamespace(done=lambda: True, results=lambda: [[0, 0, 1], [0, -9, 0]])
    codes = Slurm(processes_per_run=2, nodes=2)._codes(job, runs, None)
    assert codes is not None
    errors = [outcome(run, code).error for run, code in zip(runs, codes)]
    assert errors[0] is None
    assert errors[1] == "killed by SIGKILL; the same command resumes it"
    assert errors[2] == "it ended without a message; the same command resumes it"
