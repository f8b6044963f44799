"""The front of accuracy and bits: who is on it, the files, and runs that ask for it."""

import csv
import math
from pathlib import Path

import pytest

from fedcomp.objective.pareto import Pareto
from fedcomp.records.reader import read_runs
from fedcomp.reporting.__main__ import main
from fedcomp.reporting.group import group
from fedcomp.reporting.pareto import fronts, picture
from tests.records.synthetic_runs import MakeRun

PARETO = {"objective": {"_target_": "fedcomp.objective.pareto.Pareto", "way": "total", "bits_to": 1e6}}


@pytest.fixture
def outputs(make_run: MakeRun, tmp_path: Path) -> Path:
    """Best accuracies 80 % and 60 % at 1e5 bits, 90 % at 1e6, 50 % at 1e6, 70 % at 1e5, none."""
    make_run("sign", 0, [0.1, 0.8], extra={"bits/total": 1e5})
    make_run("sign", 1, [0.1, 0.6], extra={"bits/total": 1e5})
    make_run("topk", 0, [0.9, 0.3], extra={"bits/total": 1e6})
    make_run("qsgd", 0, [0.5, 0.3], extra={"bits/total": 1e6})
    make_run("randk", 0, [0.7], extra={"bits/total": 1e5})
    make_run("drive", 0, [], lines=[{"test/loss": 1.0}])
    return tmp_path / "outputs"


def test_who_is_on_the_front(outputs: Path) -> None:
    groups = group(read_runs([outputs]))
    assert fronts(groups) == []
    (found,) = fronts(groups, wanted=True)
    points = [(one.group.label, *one.ends) for one in found.points]
    assert points == [("randk", 0.7, 1e5), ("sign", pytest.approx(0.7), 1e5), ("topk", 0.9, 1e6)]
    assert [one.group.label for one in found.dominated] == ["qsgd"]
    assert found.hypervolume == pytest.approx(0.7)
    (panel,) = picture([found]).panels
    on, off = panel.series
    assert list(on.x) == [1e5, 1e5, 1e6]
    assert on.deviation[1] == pytest.approx(100 * math.sqrt(0.02))
    assert list(off.y) == [50]


def test_a_front_is_written(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(outputs), "--front"]) == 0
    shown = capsys.readouterr().out
    said = "3 of 4 on the front, 70.00 % at 100 kbit to 90.00 % at 1.00 Mbit; hypervolume 0.700 (accuracy × decades"
    assert said in shown
    report = outputs / "report"
    assert {"front.png", "front.pdf", "front.tex"} <= {path.name for path in report.iterdir()}
    assert said in (report / "front.md").read_text()
    assert "hypervolume 0.700" in (report / "report.html").read_text()
    rows = list(csv.DictReader((report / "front.csv").open()))
    assert [(row["method"], row["front"]) for row in rows] == [
        ("randk", "1"),
        ("sign", "1"),
        ("topk", "1"),
        ("qsgd", "0"),
    ]
    assert [row["bits"] for row in rows] == ["100000.0"] * 2 + ["1000000.0"] * 2


def test_runs_of_a_search_for_a_front_ask_for_it(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("sign", 0, [0.1, 0.8], extra={"bits/total": 1e5}, config=PARETO)
    make_run("topk", 0, [0.9, 0.3], extra={"bits/total": 1e5})
    (found,) = fronts(group(read_runs([tmp_path])))
    assert found.objective == Pareto(bits_to=1e6)
    assert found.hypervolume == pytest.approx(0.9)
    assert [one.group.label for one in found.dominated] == ["sign"]


def test_a_front_of_what_has_no_accuracy(make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run("sign", 0, [], lines=[{"test/loss": 1.0}])
    assert main([str(tmp_path), "--front"]) == 0
    assert "no method has a test/accuracy and has sent bits" in capsys.readouterr().out
    assert not (tmp_path / "report" / "front.md").exists()
