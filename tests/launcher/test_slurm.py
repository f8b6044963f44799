"""What the Slurm launcher asks submitit for, how a job of packed runs ends; a real Slurm: tests/launcher/slurm."""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedcomp.launcher import slurm
from fedcomp.launcher.contract import GridRun, last_line
from fedcomp.launcher.slurm import Pack, Slurm
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
                run.folder.mkdir()
                write_status(run.folder, Status("finished", 1))
        done = [(f"7_{index}", [0] * len(runs)) for index, runs in enumerate(packs)]
        return [
            SimpleNamespace(job_id=name, done=lambda: True, result=lambda codes=codes: codes) for name, codes in done
        ]


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
    return [
        GridRun(index, (f"seed={index}",), command, tmp_path / f"r{index}", tmp_path / f"{index}.log")
        for index in range(num)
    ]


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
    with pytest.raises(ValueError, match="launcher.nodes=0 must be a whole number, 1 or more"):
        Slurm(nodes=0)
