"""Paired differences over seeds, the order of rows, and tables without the papers' counts."""

import csv
import json
from pathlib import Path

import pytest

from fedcomp.records.reader import read_runs
from fedcomp.reporting.__main__ import main
from fedcomp.reporting.group import group
from fedcomp.reporting.tables import against
from tests.records.synthetic_runs import MakeRun


def test_the_interval_is_students() -> None:
    """Differences 1, 2, 3: mean 2, s = 1, t(2, 0.975) = 4.30265, half-width 4.30265 / sqrt(3)."""
    low, high = against.interval([1.0, 2.0, 3.0]) or (0, 0)
    assert (low, high) == (pytest.approx(2 - 2.48414, abs=1e-5), pytest.approx(2 + 2.48414, abs=1e-5))
    assert against.interval([1.0]) is None
    assert against.interval([0.5, 0.5]) == (0.5, 0.5)


def test_differences_are_of_pairs_of_one_seed(make_run: MakeRun, tmp_path: Path, capsys) -> None:
    for seed, (base, other) in enumerate([(0.5, 0.51), (0.7, 0.72), (0.6, 0.63)]):
        make_run("dense", seed, [0.1, base])
        make_run("sign", seed, [0.1, other])
    make_run("sign", 7, [0.1, 0.99])  # which dense has not
    make_run("topk", 1, [0.1, 0.6])
    assert main([str(tmp_path), "--against", "dense", "--out", str(tmp_path / "r")]) == 0
    sign, topk = csv.DictReader((tmp_path / "r" / "against.csv").open())
    assert (sign["method"], sign["seeds"], topk["method"], topk["seeds"]) == ("sign", "3", "topk", "1")
    found = [float(sign[f"test_accuracy_{end}"]) for end in ("difference", "low", "high")]
    assert found == pytest.approx([0.02, 0.02 - 0.0248414, 0.02 + 0.0248414], abs=1e-6)
    assert float(topk["test_accuracy_difference"]) == pytest.approx(-0.1)
    assert topk["test_accuracy_low"] == ""
    text = (tmp_path / "r" / "against.md").read_text()
    assert "+2.00 \\[-0.48, +4.48\\]" in text
    assert "Difference to dense: mean over the seeds that both have" in text
    assert "Difference to dense" in capsys.readouterr().out
    assert main([str(tmp_path), "--against", "dnse", "--out", str(tmp_path / "r")]) == 2
    said = capsys.readouterr().err
    assert "--against dnse: no such figures, allowed are bicompfl, fedmrn, or a method: dense, sign, topk" in said


def test_nothing_to_compare_with(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("dense", 0, [0.1, 0.5])
    groups = group(read_runs([tmp_path]))
    with pytest.raises(ValueError, match="there is no other method in its settings"):
        against.rows(groups, groups[0].label)


def test_rows_are_in_the_order_of_the_command(make_run: MakeRun, tmp_path: Path) -> None:
    for method in ("dense", "randk", "sign", "topk"):
        make_run(method, 0, [0.1, 0.5])
    demo = tmp_path / "outputs" / "demo"

    def methods(*paths: Path) -> list[str]:
        assert main([*map(str, paths), "--out", str(tmp_path / "r")]) == 0
        return [row["method"] for row in csv.DictReader((tmp_path / "r" / "table.csv").open())]

    assert methods(demo) == ["dense", "randk", "sign", "topk"]
    assert methods(demo / "topk", demo) == ["topk", "dense", "randk", "sign"]
    grid = demo / "multirun"
    grid.mkdir()
    lines = ({"folder": f"../{method}/seed=0", "overrides": []} for method in ("sign", "dense"))
    (grid / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert methods(demo) == ["sign", "dense", "randk", "topk"]


def test_without_the_papers_counts(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("dense", 0, [0.1, 0.5], extra={"bpp/uplink": 1.16, "paper/bpp/uplink": 0.956})
    make_run("sign", 0, [0.1, 0.6], extra={"bpp/uplink": 2.0})
    texts = []
    for options in ([], ["--no-paper-counts"]):
        assert main([str(tmp_path), *options, "--out", str(tmp_path / "r")]) == 0
        texts.append((tmp_path / "r" / "table.md").read_text())
    assert "1.16 (0.956)" in texts[0]
    assert "in brackets the paper's count" in texts[0]
    assert "1.16 |" in texts[1].replace("*", "")
    assert "paper" not in texts[1]
    assert "Bold: the best mean of a column" in texts[1]
