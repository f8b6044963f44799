"""The command: tables, what is not in them, files, errors of one line, exit statuses."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedcomp.reporting import build, content
from fedcomp.reporting.__main__ import main
from fedcomp.reporting.pictures.picture import Picture
from tests.records.synthetic_runs import MakeRun


def test_report(make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run("sign", 0, [0.1, 0.8])
    make_run("sign", 1, [0.1, 0.6])
    make_run("topk", 0, [0.1, 0.3], state="failed", error="ValueError: boom\nmore")
    make_run("topk", 1, [0.1], state="running")
    outputs = tmp_path / "outputs"
    assert main([str(outputs), "--target", "0.7", "--against", "bicompfl"]) == 0
    shown = capsys.readouterr().out
    assert "70.00 ± 14.14" in shown
    assert "10 (1 of 2)" in shown
    assert "104 printed rows have no run of ours" in shown
    assert "Not in the table: 2 of 4 runs" in shown
    assert "topk/seed=0: failed, at round 10 of 20, accuracy 30.00 %, ValueError: boom\n" in shown
    assert "topk/seed=1: running, or killed, at round 0 of 20, accuracy 10.00 %\n" in shown
    assert f"{outputs}/report/" in shown
    both = [f"{name}.{ending}" for name in ("curves", "curves-loss", "scatter") for ending in ("pdf", "png")]
    others = ["against.csv", "against.md", "against.tex", "report.html", "table.csv", "table.md", "table.tex"]
    assert sorted(path.name for path in (outputs / "report").iterdir()) == sorted([*both, *others])
    assert "topk/seed=0: failed" in (outputs / "report" / "table.md").read_text()
    assert "topk/seed=1: running" in (outputs / "report" / "report.html").read_text()


def test_only_unfinished_runs_are_listed_and_nothing_is_written(make_run: MakeRun, tmp_path: Path, capsys) -> None:
    make_run("sign", 0, [0.1], state="interrupted")
    assert main([str(tmp_path)]) == 1
    assert "interrupted" in capsys.readouterr().out
    assert not (tmp_path / "report").exists()


@pytest.mark.usefixtures("no_pictures")
def test_paths_and_options_in_any_order(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("sign", 0, [0.1, 0.8])
    make_run("topk", 0, [0.1, 0.7])
    one, other = (str(next(tmp_path.rglob(f"*{name}*")).resolve()) for name in ("sign", "topk"))
    assert main([one, "--out", str(tmp_path / "paper"), other, "--target", "0.5"]) == 0
    assert len((tmp_path / "paper" / "table.csv").read_text().splitlines()) == 3


def test_errors_are_one_line(make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: no run found under")
    make_run("sign", 0, [0.1, 0.8])
    (tmp_path / "file").write_text("")
    wrong = [["--out", str(tmp_path / "file" / "out")], ["--target", "90"], ["--against", "nobody"]]
    for options in wrong:
        assert main([str(tmp_path), *options]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "report").exists()


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert "fedcomp-report outputs/grid --target 0.9" in shown
    assert "exit status" in shown


def test_a_grid_too_large_to_print_says_so(make_run: MakeRun, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(content, "MAX_PANELS", 9)
    monkeypatch.setattr(content, "FIRST_PANELS", 4)
    make_run("sign", 0, [0.1, 0.7, 0.8])
    assert main([str(tmp_path), "--out", str(tmp_path / "r")]) == 0
    assert "1 of 3 pictures are drawn for print" in capsys.readouterr().out
    assert len(list((tmp_path / "r").glob("*.png"))) == 1


@pytest.mark.usefixtures("no_pictures")
def test_the_record_of_a_real_run(fedcomp, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for method in ("dense", "sign"):
        assert fedcomp("rounds=2", "quiet=true", "name=real", f"compressor={method}") == 0
    assert main([str(tmp_path / "real")]) == 0
    rows = (tmp_path / "real" / "report" / "table.md").read_text().splitlines()
    dense, sign = (row.split(" | ") for row in rows[2:4])
    assert (dense[0], dense[4:8]) == ("| dense", ["32.0", "32.0", "64.0", "1.60"])
    assert (sign[0], sign[4]) == ("| sign", "**1.05 (1.00)**")  # 2410 parameters in 4 tensors: 1 + 4 * 32 / 2410
    assert dense[-1] == sign[-1] == "1 |"


@pytest.mark.thorough
def test_files_are_written_if_nobody_reads_the_table(make_run: MakeRun, tmp_path: Path) -> None:
    """`fedcomp-report outputs | head -1`."""
    make_run("sign", 0, [0.1, 0.8])
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "fedcomp.reporting", str(tmp_path / "outputs")]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "outputs" / "report" / "report.html").is_file()


def killed(picture: Picture, paths: list[Path]) -> None:
    """As the kernel does where memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.thorough
def test_a_killed_drawing_process_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "draw", killed)
    monkeypatch.setattr(build, "FEW_PANELS", -1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    pictures = [Picture(name, "", "", (), 1, ()) for name in ("one", "two")]
    with pytest.raises(ValueError, match=r"killed \(out of memory\?\); the tables and report.html are in .*again$"):
        build.draw_all(pictures, tmp_path)
