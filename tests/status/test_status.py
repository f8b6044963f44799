"""Synthetic runs in every state, as `fedcomp-status` shows them."""

import errno
import io
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from fedcomp.cli import entry_points
from fedcomp.records.run_folder import owned
from fedcomp.status.__main__ import main
from fedcomp.status.runs import RunState, RunStates, run_states
from fedcomp.status.table import counts, render, rows
from tests.looped import looped
from tests.records.synthetic_runs import write_run
from tests.refused import one_line_error


def _run(root: Path, config: str, seed: int, state: str, accuracies: list[float], error: str | None = None) -> Path:
    options = {"seed": seed, "rounds": 20, "compressor": {"_target_": f"fedcomp.compressor.{config}.Codec"}}
    lines = [{"round": 5 * at, "test/accuracy": value, "seconds": 10.0 * at} for at, value in enumerate(accuracies)]
    folder = root / "demo" / config / f"seed={seed}"
    write_run(folder, options, state, max(0, 5 * len(lines) - 5), lines, error)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"round": 99, "test/acc')
    return folder


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    _run(tmp_path, "topk", 0, "finished", [0.1, 0.8, 0.9, 0.7, 0.85])
    _run(tmp_path, "topk", 1, "running", [0.1, 0.7, 0.6])
    _run(tmp_path, "sign", 0, "failed", [0.1], "round 3: the loss is nan")
    _run(tmp_path, "sign", 1, "interrupted", [0.1, 0.2], "interrupted after round 5 of 20, state saved")
    own = tmp_path / "demo" / "grids" / "now"
    own.mkdir(parents=True)
    listed = [("../../topk/seed=0", ["seed=0"]), ("../../new/seed=0", ["compressor=new", "seed=0"])]
    lines = [json.dumps({"number": 0, "folder": folder, "overrides": words}) for folder, words in listed]
    (own / "runs.jsonl").write_text("".join(line + "\n" for line in lines))
    return tmp_path


def test_a_seed_that_has_not_begun_is_in_the_row_of_its_method(grid: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (grid / "demo" / "grids" / "now" / "runs.jsonl").open("a") as file:
        file.write(json.dumps({"number": 2, "folder": "../../topk/seed=2", "overrides": ["seed=2"]}) + "\n")
    monkeypatch.chdir(grid)
    for root in (grid / "demo", Path("demo")):  # absolute and relative
        (row,) = [row for row in rows(run_states(root).runs) if any("topk" in str(run.folder) for run in row.runs)]
        assert {run.folder: run.seed for run in row.runs} == {root / f"topk/seed={seed}": seed for seed in range(3)}


def test_a_run_that_waits_is_named_as_those_that_have_begun(grid: Path) -> None:
    """The config in a grid's list has classes with their rooms, that of a reader has not."""
    compressor = {"_target_": "fedcomp.compressor.sparsifiers.topk.Codec", "fraction": 0.5}
    config = {"seed": 0, "rounds": 20, "compressor": compressor, "server": {"_target_": "fedcomp.server.sgd.Sgd"}}
    for path in grid.rglob("config.yaml"):
        path.write_text(f"{path.read_text()}server: {{_target_: fedcomp.server.sgd.Sgd}}\n")
    line = {"number": 2, "folder": "../../new/seed=0", "overrides": ["compressor.fraction=0.5"], "config": config}
    (grid / "demo" / "grids" / "now" / "runs.jsonl").write_text(json.dumps(line) + "\n")
    assert [row.label for row in rows(run_states(grid).runs)] == ["sign", "topk", "topk fraction=0.5"]


def test_the_same_config_under_two_names_has_the_name(grid: Path) -> None:
    shutil.copytree(grid / "demo" / "topk", grid / "other" / "topk")
    for path in grid.rglob("config.yaml"):
        path.write_text(f"{path.read_text()}name: {path.parents[2].name}\n")
    labels = [row.label for row in rows(run_states(grid).runs)]
    assert labels == ["sign", "topk (demo)", "topk (other)", "compressor=new"]


def test_two_settings_may_have_a_method_of_one_name_and_stand_in_order(tmp_path: Path) -> None:
    for clients in (5, 10):
        for method in ("sign", "topk"):
            compressor = {"_target_": f"fedcomp.compressor.{method}.Codec"}
            options = {"rounds": 1, "num_clients": clients, "compressor": compressor}
            write_run(tmp_path / f"{method}{clients}" / "seed=0", options, "finished", 1)
    found = [(row.setting, row.label) for row in rows(run_states(tmp_path).runs)]
    assert found == [(f"{clients} clients", method) for clients in (5, 10) for method in ("sign", "topk")]


def test_every_state(grid: Path) -> None:
    with owned(grid / "demo" / "topk" / "seed=1"):
        runs = {f"{run.folder.parent.name} {run.seed}": run for run in run_states(grid).runs}
        states = {name: run.state for name, run in runs.items()}
    assert states == {
        "topk 0": "done",
        "topk 1": "running",
        "sign 0": "failed",
        "sign 1": "interrupted",
        "new 0": "not started",
    }
    running = runs["topk 1"]
    assert (running.round, running.rounds, running.best) == (10, 20, 0.7)
    assert running.seconds_left == pytest.approx(20.0)
    assert counts(list(runs.values())).startswith("5 runs: 1 done, 1 running, 1 not started, 1 interrupted, 1 failed")
    first, second, third = rows(list(runs.values()))
    assert [first.label, second.label, third.label] == ["sign", "topk", "compressor=new"]
    assert second.best == pytest.approx((0.9 + 0.7) / 2)
    assert second.progress == 0.75


def test_a_run_that_reached_its_max_bits_is_complete(tmp_path: Path) -> None:
    _run(tmp_path, "topk", 0, "finished", [0.1, 0.8])  # 5 of 20 rounds
    (row,) = rows(run_states(tmp_path).runs)
    assert (row.runs[0].round, row.progress) == (5, 1)


WRONG = [
    ("runs.jsonl", line)
    for line in ("[]", '{"folder": NaN, "overrides": []}', '{"folder": "x", "overrides": [true]}', "[" * 100_000)
] + [("runs.jsonl", f'{{"folder": "x", "overrides": [], "config": {one}}}') for one in ("[1]", '{"rounds": null}')]


@looped("file, line", [("jobs.jsonl", '{"job": "1'), ("runs.jsonl", '{"folder": "x"}'), *WRONG])
def test_a_damaged_line_of_a_grid_is_named(grid: Path, file: str, line: str) -> None:
    (grid / "demo" / "grids" / "now" / file).write_text(f"{line}\n")
    with one_line_error(rf"{file}, line 1 is damaged: .*; remove it to read the rest"):
        run_states(grid)


@looped(
    "file, text, said",
    [
        ("status.json", "{", "is no status file"),
        ("status.json", "[" * 100_000, "is no status file"),
        ("status.json", '{"state": "running", "round": Infinity}', "is no status file"),
        ("status.json", '{"state": "finished", "round": -1}', "is no status file: it says that -1 rounds are done"),
        ("status.json", None, "cannot read"),
        ("config.yaml", "- a\n", "must be a mapping"),
        ("metrics.jsonl", "7\n", "line 1 is no record"),
        ("metrics.jsonl", "[" * 100_000 + "\n", "line 1 is no record"),
        ("metrics.jsonl", f'{{"round": {2**63}}}\n', "line 1 is no record"),
        ("metrics.jsonl", None, "cannot read"),
    ],
)
def test_a_broken_file_is_the_error_of_its_run(tmp_path: Path, file: str, text: str | None, said: str) -> None:
    root = tmp_path / f"{file} {said}{text!r:.20}"
    path = _run(root, "topk", 1, "finished", [0.1]) / file
    path.unlink()
    path.mkdir() if text is None else path.write_text(text)
    (run,) = run_states(root).runs
    assert (run.state, said in str(run.error)) == ("failed", True)


def test_a_folder_that_cannot_be_listed_is_shown(grid: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root may list everything, `os.scandir` refuses it here."""
    closed, scandir = grid / "demo" / "topk", os.scandir

    def refusing(path: str) -> Iterator[os.DirEntry[str]]:
        if Path(path) == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    shown = [run.folder.relative_to(grid / "demo").as_posix() for run in run_states(grid).runs]
    assert shown == ["sign/seed=0", "sign/seed=1", "topk", "new/seed=0"]


def test_a_grid_of_its_own_shows_its_runs_alone(grid: Path) -> None:
    states = [(run.folder.parent.name, run.state) for run in run_states(grid / "demo" / "grids" / "now").runs]
    assert states == [("topk", "done"), ("new", "not started")]


def test_the_screen_and_the_exit_status(grid: Path, capsys) -> None:
    assert main([str(grid)]) == 1
    shown = capsys.readouterr().out
    assert "round 3: the loss is nan" in shown
    assert "killed after round 10; the same command resumes it" in shown
    assert "\x1b" not in shown, "no escape codes where there is no terminal"
    assert main([str(grid / "demo" / "topk" / "seed=0")]) == 0
    assert "1 run: 1 done" in capsys.readouterr().out
    assert main([str(grid / "nowhere")]) == 2
    assert "is no folder" in capsys.readouterr().err


def test_what_is_not_done_is_below_100_percent(capsys) -> None:
    run = RunState(Path("c/seed=0"), 0, {}, "", "interrupted", round=999, rounds=1000)
    Console(width=120).print(render(RunStates([run]), bars=True))
    assert "╌ 99 %" in capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 120])
def test_bars_stand_where_there_is_room(grid: Path, monkeypatch: pytest.MonkeyPatch, capsys, width: int) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    main([str(grid)])
    shown = capsys.readouterr().out
    assert ("╌" in shown) == (width == 120)


def test_a_stream_without_the_characters_shows_escapes(grid: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with LC_ALL=C in a container."""
    config = grid / "demo" / "topk" / "seed=0" / "config.yaml"
    config.write_text(f"label: '\u65e5\u672c'\n{config.read_text()}")
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, "ascii", "surrogateescape"))
    monkeypatch.setattr("sys.argv", ["fedcomp-status", str(grid)])
    with pytest.raises(SystemExit) as end:
        entry_points.status()
    assert end.value.code == 1, "a run failed"
    assert rb"\u65e5\u672c" in written.getvalue()


def test_a_status_parses_only_the_end_of_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which keeps it fast for thousands of long runs."""
    for seed in range(10):
        _run(tmp_path, "c", seed, "finished", [0.1 + 0.008 * index for index in range(100)])
    parsed: list[str | bytes] = []
    loads = json.loads
    monkeypatch.setattr(json, "loads", lambda text, **options: parsed.append(text) or loads(text, **options))
    runs = run_states(tmp_path).runs
    assert [round(run.best or 0, 3) for run in runs] == [0.892] * 10
    assert len(parsed) <= 3 * len(runs)


@looped("seconds", ["0", "-1"])
def test_a_wrong_number_of_seconds(grid: Path, capsys: pytest.CaptureFixture[str], seconds: str) -> None:
    assert main([str(grid), "--watch", seconds]) == 2
    assert f"--watch {seconds}: give seconds above 0" in capsys.readouterr().err


@looped("words", ["PATH --watch", "--watch PATH", "PATH --watch 0.01", "--watch 0.01 PATH"])
def test_the_path_and_watch_in_any_order(grid: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    done = grid / "demo" / "topk"
    (done / "seed=1" / "status.json").write_text((done / "seed=0" / "status.json").read_text())
    assert main([str(done) if word == "PATH" else word for word in words.split()]) == 0
    assert "topk" in capsys.readouterr().out
