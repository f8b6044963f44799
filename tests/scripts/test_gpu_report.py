"""The report of a GPU: it goes on after whatever happens to a part, and keeps what it has after each."""

import json
import sys
import time
from pathlib import Path

import pytest
import torch

from scripts import bench_forms, gpu_equality, gpu_report, gpu_resume
from scripts.figures import keep, read
from scripts.gpu_report import Part, report

LINES = '{"job": "J1", "milliseconds": 0.25}\n{"cut off'
KEEPS = f"import sys; open(sys.argv[2], 'w').write({LINES!r}); print('fine')"
HANGS = "import subprocess, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"


def test_a_report_goes_on_whatever_happens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = [
        Part("keeps", ("-c", KEEPS), 30),
        Part("fails", ("-c", "raise SystemExit('no such thing')"), 30, figures=False),
        Part("hangs", ("-c", HANGS), 3, figures=False),
        Part("after", ("-c", "print('```')"), 30, figures=False),
    ]
    found = report(parts, tmp_path, 120)
    assert [one.status for one in found] == ["passed", "failed with status 1", "out of time", "passed"]
    content = json.loads((tmp_path / "report.json").read_text())
    assert [one["part"] for one in content["parts"]] == ["keeps", "fails", "hangs", "after"]
    assert content["parts"][0]["figures"] == [{"job": "J1", "milliseconds": 0.25}]
    page = (tmp_path / "report.md").read_text()
    for text in ("| hangs | out of time | 3 | 3 |", "- job J1, milliseconds 0.25", "no such thing", "'''"):
        assert text in page
    assert "fails            failed with status 1" in capsys.readouterr().out
    assert _ended(int((tmp_path / "hangs.log").read_text())), "what a part has started ends with it"


def test_what_was_found_is_there_after_each_part(tmp_path: Path) -> None:
    shows = f"print(open({str(tmp_path / 'report.md')!r}).read())"
    commands = {"first": "print(6 * 7)", "second": shows}
    report([Part(name, ("-c", command), 30, figures=False) for name, command in commands.items()], tmp_path, 99)
    assert "42" in (tmp_path / "second.log").read_text()


def test_no_time_left_is_said(tmp_path: Path) -> None:
    (found,) = report([Part("late", ("-c", "print(1)"), 30)], tmp_path, 0)
    assert found.status == "not run: no time was left"
    assert "late" in (tmp_path / "report.md").read_text()


def test_all_parts_have_names_and_files() -> None:
    for device, small in (("cuda", False), ("cpu", True)):
        parts = gpu_report.parts(device, small)
        assert len({part.name for part in parts}) == len(parts)
        for word in (word for part in parts for word in part.command if word.startswith(("tests/", "scripts/"))):
            assert (gpu_report.ROOT / word).exists()
        for module in (part.command[1] for part in parts if part.command[0] == "-m" and "." in part.command[1]):
            assert (gpu_report.ROOT / (module.replace(".", "/") + ".py")).exists()
        assert {"machine", "tests", "equality", "rounds", "mrc", "codecs", "resume"} <= {part.name for part in parts}


def test_rounds_that_differ_or_wait_are_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["gpu_equality", "J1", "--device", "cpu", "--rounds", "1", "--figures", str(tmp_path / "kept")]
    monkeypatch.setattr(sys, "argv", arguments)
    assert gpu_equality.main() == 0
    *times, compared = read(tmp_path / "kept")
    assert [one["what"] for one in times] == ["J1 fp32 eager", "J1 fp32 plain"]
    assert compared["same_bits"] is True
    options = type("Options", (), {"figures": None})()
    one, other = {"theta": torch.zeros(2)}, {"theta": torch.ones(2)}
    assert gpu_equality._compared("J1", {"graphs": one, "eager": one, "plain": other}, {}, options)
    assert not gpu_equality._compared("J1", {"graphs": one, "eager": other}, {}, options)
    assert not gpu_equality._compared("J1", {"graphs": one, "eager": one}, {"wire/link.py:3": 1}, options)


def test_runs_that_differ_are_found(tmp_path: Path) -> None:
    for name, loss in (("whole", 1.0), ("cut", 2.0)):
        folder = tmp_path / name / "run"
        folder.mkdir(parents=True)
        keep(folder / "metrics.jsonl", round=0, loss=1.0, seconds=loss)
        keep(folder / "metrics.jsonl", round=1, loss=loss, seconds=loss)
        torch.save({"state": {"theta": torch.tensor([loss]), "ones": torch.ones(1)}}, folder / "checkpoint.pt")
    assert gpu_resume.compare(tmp_path / "whole", tmp_path / "cut") == ["line 1 of the metrics", "state theta"]
    assert gpu_resume.compare(tmp_path / "cut", tmp_path / "cut") == []


@pytest.mark.slow
def test_every_part_runs_on_a_cpu_in_small_form(tmp_path: Path) -> None:
    status = gpu_report.main(["--device", "cpu", "--small", "--out", str(tmp_path)])
    assert status == 0, (tmp_path / "report.md").read_text()
    figures = {one["part"]: one["figures"] for one in json.loads((tmp_path / "report.json").read_text())["parts"]}
    assert figures["rounds"][0]["milliseconds"] > 0
    assert figures["codecs"][0]["codec"] == "sign"
    assert len(figures["mrc"]) == 5


def _ended(pid: int) -> bool:
    """Whether the process ends within some seconds."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":  # ended; whoever adopted it has not yet asked
            return True
        time.sleep(0.05)
    return False


def test_each_form_has_a_row_that_says_by_how_much_it_wins(tmp_path: Path, capsys, monkeypatch) -> None:
    """As on a GPU, here for the forms of a CPU; one that is refused has a row that says why."""
    seconds = {"local steps in one call": 4.0, "compiled networks": 3.0}
    forms = dict.fromkeys(seconds, "") | {"CUDA graphs": "other results"}
    monkeypatch.setattr(bench_forms, "forms_of", lambda *_: forms)
    times = lambda job, device, precision, repeats, verdicts: max(  # noqa: E731
        [seconds[name] for name in verdicts.found] or [8.0 if verdicts.safe else 2.0]
    )
    monkeypatch.setattr(bench_forms, "milliseconds", times)
    bench_forms.main(["--device", "cpu", "--figures", str(tmp_path / "forms"), "J1"])
    rows = read(tmp_path / "forms")
    found = {row["form"]: row.get("wins", row.get("refused")) for row in rows}
    wins = {"local steps in one call": 2.0, "compiled networks": 1.5, "all of them": 4.0}
    assert found == wins | {"CUDA graphs": "other results"}
    assert len(rows) == 4
    assert "J1   local steps in one call wins by 2.00 on this device" in capsys.readouterr().out
