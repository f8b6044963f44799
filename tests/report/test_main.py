"""The command: table, what is not in it, files, errors of one line."""

from pathlib import Path

import pytest

from fedcomp.report.__main__ import main

from .conftest import MakeRun


def test_report(make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run("sign", 0, [0.1, 0.8])
    make_run("sign", 1, [0.1, 0.6])
    make_run("topk", 0, [0.1, 0.3], state="failed", error="ValueError: boom\nmore")
    make_run("topk", 1, [0.1], state="running")
    outputs = tmp_path / "outputs"
    assert main([str(outputs)]) == 0
    shown = capsys.readouterr().out
    assert "70.00 ± 14.14" in shown
    assert "Not in the table: 2 of 4 runs" in shown
    assert "topk/seed=0: failed, at round 10, accuracy 30.00 %, ValueError: boom\n" in shown
    assert "topk/seed=1: running, at round 0, accuracy 10.00 %\n" in shown
    assert f"{outputs}/report/" in shown
    assert sorted(path.name for path in (outputs / "report").iterdir()) == [
        "curves.pdf",
        "curves.png",
        "table.csv",
        "table.md",
    ]
    assert main([str(outputs), "--out", str(tmp_path / "elsewhere")]) == 0
    assert (tmp_path / "elsewhere" / "curves.png").exists()


def test_only_unfinished_runs_are_listed_and_nothing_is_written(
    make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run("sign", 0, [0.1], state="interrupted")
    assert main([str(tmp_path)]) == 0
    assert "interrupted" in capsys.readouterr().out
    assert not (tmp_path / "report").exists()


def test_errors_are_one_line(make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: no run found under")
    make_run("sign", 0, [0.1, 0.8])
    (tmp_path / "file").write_text("")
    assert main([str(tmp_path), "--out", str(tmp_path / "file" / "out")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
