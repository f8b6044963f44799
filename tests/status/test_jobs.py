"""Runs of a grid of jobs, as `fedcomp-status` shows them with what a (pretended) Slurm says."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedcomp.launcher import slurm_jobs
from fedcomp.records.grid import note_jobs
from fedcomp.status import __main__ as status
from fedcomp.status.__main__ import main
from fedcomp.status.runs import run_states
from fedcomp.status.table import rows
from tests.records.synthetic_runs import write_run

SQUEUE = """#!/bin/sh
echo "squeue $*" >> {log}
cat {root}/squeue.txt
"""
SACCT = SQUEUE.replace("squeue", "sacct")
EARLY, LATE = "2020-01-01T00:00:00", "2199-01-01T00:00:00"


class Cluster:
    """Answers in place of squeue and sacct, on PATH."""

    def __init__(self, root: Path) -> None:
        self.root, self.log = root, root / "asked.log"
        self.log.touch()
        for name, text in (("squeue", SQUEUE), ("sacct", SACCT)):
            self.program(name, text.format(log=self.log, root=root))
        self.says()

    def program(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)
        (self.root / name).chmod(0o755)

    def says(self, squeue: str = "", sacct: str = "") -> None:
        """Lines `job|STATE|start`, separated by blanks."""
        (self.root / "squeue.txt").write_text("\n".join(squeue.split(" ")) + "\n")
        (self.root / "sacct.txt").write_text("\n".join(sacct.split(" ")) + "\n")

    @property
    def asked(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return Cluster(folder)


CONFIG = {"rounds": 20, "compressor": {"_target_": "fedcomp.compressor.sparsifiers.topk.TopK"}}


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    """Seeds 0 to 5 of one method as jobs 7_0 to 7_5: done, running (nobody holds it), interrupted, failed, two new."""
    outputs = tmp_path / "outputs"
    own = outputs / "demo" / "grids" / "now"
    own.mkdir(parents=True)
    folders = [outputs / "demo" / "abcd" / f"seed={seed}" for seed in range(6)]
    for folder, state in zip(folders, ("finished", "running", "interrupted", "failed")):
        write_run(folder, CONFIG, state, 5, error="its word")
    lines = [
        {"number": seed, "folder": os.path.relpath(folder, own), "overrides": [f"seed={seed}"]}
        for seed, folder in enumerate(folders)
    ]
    (own / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    note_jobs(own, {folder: f"7_{seed}" for seed, folder in enumerate(folders)})
    return outputs


def _states(grid: Path) -> list[str]:
    return [run.state for run in sorted(run_states(grid).runs, key=lambda run: run.seed or 0)]


def test_without_a_slurm_the_files_speak(grid: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert run_states(grid).problem is None
    assert _states(grid) == ["done", "killed", "interrupted", "failed", "not started", "not started"]


@pytest.mark.parametrize(
    ("said", "states"),
    [
        ("PENDING", ["done", *["requeued"] * 3, "waiting", "waiting"]),
        (f"RUNNING|{EARLY}", ["done", "killed", "requeued", "failed", "waiting", "waiting"]),
        (f"RUNNING|{LATE}", ["done", "requeued", "requeued", "failed", "waiting", "waiting"]),
        ("PREEMPTED", ["done", "preempted", "preempted", "failed", "preempted", "preempted"]),
        ("CANCELLED", ["done", "cancelled", "cancelled", "failed", "cancelled", "cancelled"]),
        ("TIMEOUT", ["done", "killed", "interrupted", "failed", "killed", "killed"]),
        ("COMPLETED", ["done", "killed", "interrupted", "failed", "killed", "killed"]),
    ],
)
def test_every_state_of_a_job(cluster: Cluster, grid: Path, said: str, states: list[str]) -> None:
    said = said if "|" in said else f"{said}|N/A"
    cluster.says(squeue=" ".join(f"7_{seed}|{said}" for seed in range(6)))
    assert _states(grid) == states
    assert len(cluster.asked) == 1, "one call for all"


def test_accounting_knows_what_the_queue_has_forgotten(cluster: Cluster, grid: Path, capsys) -> None:
    ended = f"7_2|COMPLETED|{EARLY} 7_3|COMPLETED|{EARLY} 7_1|PREEMPTED|{EARLY} 7_1|OUT_OF_MEMORY|{EARLY}"
    cluster.says(squeue="7_4|PENDING|N/A", sacct=f"{ended} 7_5|CANCELLED+|Unknown")
    assert _states(grid) == ["done", "killed", "interrupted", "failed", "waiting", "cancelled"]
    assert [line.split()[0] for line in cluster.asked] == ["squeue", "sacct"]
    assert main([str(grid)]) == 1
    shown = capsys.readouterr().out
    assert "job 7_1 ended after round 5: OUT_OF_MEMORY; the same command resumes it" in shown
    assert "job 7_5 was cancelled; the same command resumes it" in shown
    assert "1 waiting" in shown


def test_a_task_that_was_cancelled_before_its_turn(cluster: Cluster, grid: Path) -> None:
    """Slurm 22.05 then knows nothing of the task, in its queue or in its accounts, but of the array."""
    cluster.says(squeue="7_4|PENDING|N/A", sacct="7_[4%4]|PENDING|Unknown")
    assert _states(grid)[4:] == ["waiting", "cancelled"]
    cluster.says(sacct="7_[0-5%4]|CANCELLED|Unknown")
    assert _states(grid)[4:] == ["cancelled", "cancelled"]


def test_a_run_by_a_script_of_the_user_s_own(cluster: Cluster, tmp_path: Path) -> None:
    """Its job is known from the run itself."""
    folder = tmp_path / "outputs" / "demo" / "abcd" / "seed=0"
    write_run(folder, CONFIG, "interrupted", 5, error="saved")
    session = dict.fromkeys(("start", "host", "device", "processor"), "")
    session |= {"threads": 1, "processes": 1, "versions": {}, "commits": [], "accepted": [], "job": "12"}
    kept = {"data": {}, "code": {}, "sessions": [session], "since": 0}
    (folder / "provenance.json").write_text(json.dumps(kept))
    cluster.says(squeue="12|PENDING|N/A")
    assert _states(tmp_path / "outputs") == ["requeued"]


@pytest.mark.parametrize("how", ["fails", "hangs", "forgot"])
def test_a_slurm_that_does_not_answer_is_said_and_stops_nothing(
    cluster: Cluster, grid: Path, capsys, monkeypatch, how: str
) -> None:
    monkeypatch.setattr(slurm_jobs, "SECONDS", 0.2)
    line = {
        "fails": "echo 'squeue: error: no controller' >&2; exit 1",
        "hangs": "exec sleep 60",
        "forgot": "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1",
    }[how]
    cluster.program("squeue", f"#!/bin/sh\n{line}\n")
    if how == "forgot":
        monkeypatch.setattr(slurm_jobs, "SECONDS", 60.0)
    assert main([str(grid)]) == 1
    shown = capsys.readouterr().out
    assert "1 done, 2 not started, 1 interrupted, 1 killed, 1 failed" in shown
    assert ("Slurm does not answer" in shown) == (how != "forgot")


def test_watch_waits_for_what_is_requeued(cluster: Cluster, grid: Path, monkeypatch) -> None:
    said = iter(["PENDING", "RUNNING", "CANCELLED"])

    def sleep(seconds: float) -> None:
        cluster.says(squeue=" ".join(f"7_{seed}|{next(said) if seed == 2 else 'CANCELLED'}|N/A" for seed in range(6)))

    sleep(0)
    monkeypatch.setattr(status, "time", SimpleNamespace(sleep=sleep))
    assert main([str(grid), "--watch"]) == 1
    assert next(said, None) is None


def test_what_has_not_begun_is_called_by_its_method(grid: Path) -> None:
    """Not by the folder, also where nothing but the seed was given."""
    for folder in (grid / "demo" / "abcd").iterdir():
        for path in folder.iterdir():
            path.unlink()
    manifest = grid / "demo" / "grids" / "now" / "runs.jsonl"
    lines = [json.loads(line) for line in manifest.read_text().splitlines()]
    lines[0]["config"] = {**CONFIG, "label": "top 3 %"}
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (row,) = rows(run_states(grid).runs)
    assert row.label == "top 3 %"
    assert len(row.runs) == 6
    assert row.progress == 0


@pytest.mark.thorough
def test_a_grid_says_how_its_methods_are_configured(fedcomp, tmp_path: Path) -> None:
    tiny = ("dataset=diabetes", "model=linear", "num_clients=4", "rounds=1", "pictures=false")
    assert fedcomp("-m", *tiny, "compressor=dense,7.yaml") == 2
    assert fedcomp("-m", *tiny, "compressor=topk", "compressor.fraction=7,8", "seed=0,1") == 1
    (manifest,) = tmp_path.rglob("runs.jsonl")
    configs = [json.loads(line).get("config") for line in manifest.read_text().splitlines()]
    assert [config and config["compressor"]["fraction"] for config in configs] == [7, None, 8, None]
