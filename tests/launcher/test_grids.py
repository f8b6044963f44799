"""Grids through the command line, with every launcher that needs no cluster: what is run, skipped, said."""

import re
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from fedcomp.config import schema
from fedcomp.config.identity import config_hash
from fedcomp.core.folders import CONF
from fedcomp.launcher import process
from fedcomp.launcher.contract import GridRun, RunOutcome
from fedcomp.records.status import read_status
from tests.outside import write_files

QUICK = ("rounds=2", "num_clients=5", "client.batch_size=40", "threads=1", "device=cpu")


def _states(root: Path) -> list[str]:
    found = (read_status(path.parent) for path in root.rglob("status.json"))
    return sorted(status.state for status in found if status is not None)


def test_local_skips_what_is_finished_and_goes_on_after_what_fails(fedcomp, tmp_path: Path, capsys) -> None:
    command = ("-m", *QUICK, "compressor=topk", "compressor.fraction=0.1,7", "seed=range(2)")
    assert fedcomp(*command) == 1
    assert _states(tmp_path) == ["failed", "failed", "finished", "finished"]
    shown = capsys.readouterr().err
    assert "compressor.fraction=7 must be a number in (0, 1]" in shown
    assert re.search("2 finished, 2 failed, in .* s: run the same command to retry them; ", shown)
    assert "fedcomp-status" in shown
    assert "composing" not in shown
    assert fedcomp(*command) == 1
    shown = capsys.readouterr().err
    assert "2 of 4 runs are finished already" in shown
    assert shown.count("of the grid:") == 2


def test_two_runs_that_are_the_same_are_made_once(fedcomp, tmp_path: Path, capsys) -> None:
    """At the same time each would find the folder held by the other."""
    assert fedcomp("-m", *QUICK, "rounds=1", "pictures=false", "label=a,b", "name=two words") == 0
    shown = capsys.readouterr().err
    assert "1 of 2 runs only repeat others, which are made once: run 1 (label=b) differs from run 0 (label=a)" in shown
    assert shown.count("of the grid:") == 1
    assert "2 finished, 0 failed" in shown
    assert f"`fedcomp-status '{tmp_path / 'two words'}'` shows them" in shown
    assert _states(tmp_path) == ["finished"]


@pytest.mark.parametrize("search", [(), ("sweeper=optuna", "sweeper.n_trials=1", "client.lr=interval(0.1, 0.2)")])
def test_a_grid_and_a_study_lie_below_the_home_folder_where_their_runs_do(fedcomp, tmp_path, monkeypatch, search):
    if search:
        pytest.importorskip("optuna", reason="no Optuna here: pip install 'fedcomp[grids]'")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    wrong = ("compressor=topk", "compressor.fraction=7", "output_root=~/runs")
    assert fedcomp(*(search or ("-m",)), *QUICK, *wrong) == 1
    assert not (tmp_path / "~").exists()
    assert {"status.json", "runs.jsonl"} <= {path.name for path in (tmp_path / "runs").rglob("*")}
    assert bool(search) == bool(list((tmp_path / "runs").rglob("study.log")))


def test_grids_that_begin_in_the_same_second_have_folders_of_their_own() -> None:
    schema.register()
    one, other = (OmegaConf.load(CONF / "train.yaml") for _ in range(2))
    first = one.hydra.sweep.dir
    assert re.fullmatch(r"outputs/fedcomp/grids/[-_0-9]+", first)
    assert first == one.hydra.sweep.dir != other.hydra.sweep.dir


def test_a_large_grid_says_that_it_is_composed(fedcomp, capsys) -> None:
    for quiet in ("false", "true"):
        assert fedcomp("-m", "seed=range(19)", "num_clients=5,-1", f"quiet={quiet}") == 2
        said = "" if quiet == "true" else "fedcomp: composing 38 runs\n"
        assert (
            capsys.readouterr().err
            == f"{said}fedcomp: error: num_clients=-1 must be a whole number, 1 or more, or null\n"
        )


@pytest.mark.thorough
def test_a_broken_member_does_not_stop_the_rest(fedcomp, tmp_path: Path, capsys) -> None:
    tiny = ("-m", *QUICK, "rounds=1", "dataset=diabetes", "model=linear", "pictures=false")
    assert fedcomp(*tiny, "seed=0,1") == 0
    for name, text in (("seed=0/status.json", "{"), ("seed=1/metrics.jsonl", "no json\n")):
        (path,) = (path for path in tmp_path.rglob(Path(name).name) if path.parent.name == Path(name).parent.name)
        path.write_text(text)
    capsys.readouterr()
    assert fedcomp(*tiny, "seed=0,1,2") == 1
    shown = capsys.readouterr().err
    assert "seed=0) failed: " in shown
    assert "seed=1) failed: " in shown
    assert "1 finished, 2 failed" in shown


@pytest.mark.thorough
def test_joblib_runs_each_in_a_process_of_its_own(fedcomp, tmp_path: Path, capsys) -> None:
    assert fedcomp(*QUICK, "launcher=joblib", "launcher.n_jobs=2", "compressor=topk", "compressor.fraction=0.1,7") == 1
    assert _states(tmp_path) == ["failed", "finished"]
    shown = capsys.readouterr().err
    assert "run 1 (compressor.fraction=7) failed: compressor.fraction=7 must be a number" in shown
    assert "run 0 (compressor.fraction=0.1) finished" in shown
    (log,) = tmp_path.rglob("1.log")
    assert "compressor.fraction=7" in log.read_text()


def test_an_experiment_may_be_a_grid_and_the_command_line_wins(fedcomp, tmp_path: Path, capsys) -> None:
    experiment = (
        "# @package _global_\n# Two compressors, two seeds.\nname: two\n"
        "hydra: {mode: MULTIRUN, sweeper: {params: {compressor: 'topk,sign', seed: '0,1'}}}\n"
    )
    mine = ("--config-dir", str(write_files(tmp_path / "mine", {"experiment/mse/two.yaml": experiment})))
    out = f"output_root={tmp_path / 'out'}"
    assert fedcomp(*mine, *QUICK, "experiment=mse/two", "seed=5", out) == 0
    assert sorted(path.parent.name for path in tmp_path.rglob("status.json")) == ["seed=5", "seed=5"]
    shown = capsys.readouterr().err
    assert "2 finished, 0 failed" in shown
    assert "retry" not in shown
    assert fedcomp(*mine, "experiment=") == 0
    shown = capsys.readouterr().out
    lines = {name: about.strip() for name, _, about in (line.partition(" ") for line in shown.splitlines())}
    assert lines["mse/two"] == "Two compressors, two seeds."
    assert lines["quickstart"].startswith("The 8x8 digits")
    assert not any("/method/" in name for name in lines)


@pytest.mark.thorough
def test_optuna_studies_digits_and_resumes(fedcomp, tmp_path: Path, capsys) -> None:
    pytest.importorskip("optuna", reason="no Optuna here: pip install 'fedcomp[grids]'")
    search = ("sweeper=optuna", "client.lr=tag(log, interval(0.001, 1))", "compressor=dense,sign", *QUICK)
    assert fedcomp(*search, "sweeper.n_trials=4", "sweeper.n_jobs=2") == 0
    assert "4 finished, 0 failed" in capsys.readouterr().err
    assert fedcomp(*search, "sweeper.n_trials=6") == 0
    shown = capsys.readouterr().err
    assert "2 finished, 0 failed" in shown
    assert "best of 6 trials: accuracy" in shown
    assert len(list(tmp_path.rglob("status.json"))) == 6
    assert fedcomp(*search, "sweeper.n_trials=6", "sweeper.n_jobs=3", "quiet=true", "threads=1") == 0
    assert re.fullmatch("fedcomp: best of 6 trials: .*\n", capsys.readouterr().err), "what was searched for, alone"
    assert fedcomp(*search, "sweeper.n_trials=6", "server.lr=0.5") == 2
    assert "server.lr=0.5" in capsys.readouterr().err


def test_more_processes_than_clients_are_refused_before_they_queue(fedcomp, tmp_path, capsys, monkeypatch) -> None:
    pytest.importorskip("submitit", reason="no submitit here: pip install 'fedcomp[grids]'")
    for name in ("sbatch", "sinfo", "srun"):  # submitit asks for the last
        (tmp_path / name).write_text("#!/bin/sh\ntouch $0.called\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    slurm = ("launcher=slurm", "launcher.processes_per_run=3", f"output_root={tmp_path}")
    assert fedcomp("-m", *QUICK, *slurm, "num_clients=4,2") == 2
    error = "3 processes for 2 clients: start 2 at most (torchrun --nproc_per_node, launcher.processes_per_run)"
    assert capsys.readouterr().err == f"fedcomp: error: {error}\n"
    assert not (tmp_path / "sbatch.called").exists()
    assert fedcomp("-m", *QUICK, *slurm, "num_clients=2", "repeats=3,4") != 0  # a process for each repetition
    assert "processes for" not in capsys.readouterr().err
    assert (tmp_path / "sbatch.called").exists()


def test_where_and_how_a_grid_runs_is_no_setting_of_a_run() -> None:
    plain = {"rounds": 3, "launcher": {"n_jobs": 1}, "sweeper": {}, "objective": {"target": 0.9}}
    assert config_hash(plain) == config_hash({"rounds": 3})


def test_a_grid_says_how_much_time_is_left(capsys, monkeypatch, tmp_path: Path) -> None:
    clock = iter([0.0, 60.0, 120.0, 180.0])
    monkeypatch.setattr(process.time, "monotonic", lambda: next(clock))
    tally = process.Tally(3)
    for number, (error, shown) in enumerate([(None, True), ("boom", False), ("boom", True)]):
        tally.add(RunOutcome(GridRun(number, ("seed=1",), (), tmp_path, tmp_path), error), shown)
    assert capsys.readouterr().err.splitlines() == [
        "fedcomp: [1/3, about 2 m 00 s left] run 0 (seed=1) finished",
        "fedcomp: [3/3] run 2 (seed=1) failed: boom",
    ]


def test_a_quiet_grid_says_what_went_wrong_alone(fedcomp, tmp_path: Path, capsys) -> None:
    quiet = ("-m", *QUICK, "quiet=true", "compressor=topk", "pictures=false")
    for _ in range(2):  # the second time both are finished already
        assert fedcomp(*quiet, "seed=0,1") == 0
        assert capsys.readouterr().err == ""
    assert fedcomp(*quiet, "launcher=joblib", "launcher.n_jobs=1", "compressor.fraction=0.2,7") == 1
    failed, summary = capsys.readouterr().err.splitlines()
    assert "run 1 (compressor.fraction=7) failed: compressor.fraction=7 must be a number" in failed
    assert "1 finished, 1 failed" in summary


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return lines[-1]['test/best']", "raised KeyError ('test/best')"),
        ("return lines[-1:]", r"returned [{'round': "),
    ],
)
def test_an_objective_that_cannot_read_a_record_is_told_behind_the_summary(
    fedcomp, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch, body: str, words: str
) -> None:
    monkeypatch.delitem(sys.modules, "wrong_objective", raising=False)
    code = f"class Wrong:\n    direction = 'maximize'\n\n    def __call__(self, lines):\n        {body}\n"
    files = {"objective/wrong.yaml": "_target_: wrong_objective.Wrong\n", "wrong_objective.py": code}
    mine = write_files(tmp_path / "mine", files)
    monkeypatch.syspath_prepend(mine)
    command = ("--config-dir", str(mine), *QUICK, "pictures=false", "quiet=true", "objective=wrong")
    assert fedcomp(*command, "-m", "seed=0,1", f"output_root={tmp_path / 'out'}") == 1
    (shown,) = capsys.readouterr().err.splitlines()
    assert shown.startswith(f"fedcomp: run 0 (seed=0) is finished, but objective Wrong {words}")
    assert shown.endswith("(and 1 more); correct it: the same command goes on, and makes no finished run again")
    assert _states(tmp_path / "out") == ["finished"] * 2
    assert fedcomp(*command, "seed=0", f"output_root={tmp_path / 'out'}") == 0, "it is the run's end, and no search's"
    assert f"fedcomp: the run is finished, but objective Wrong {words}" in capsys.readouterr().err
