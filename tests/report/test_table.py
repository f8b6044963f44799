"""The table's numbers, by hand."""

import csv
import io
import math
from pathlib import Path

import pytest

from fedcomp.report import table
from fedcomp.report.group import group
from fedcomp.report.runs import find

from .conftest import MakeRun


def test_mean_and_sample_deviation_by_hand() -> None:
    assert table.mean_over_seeds([1.0, 2.0, 4.0, 5.0]) == table.Mean(3.0, math.sqrt(10 / 3), 4)
    assert table.mean_over_seeds([7.0]) == table.Mean(7.0, None, 1)
    assert math.isnan(table.mean_over_seeds([1.0, math.nan]).mean)


def test_markdown(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("sign", 0, [0.1, 0.9, 0.8])
    make_run("sign", 1, [0.1, 0.5, 0.6])
    make_run("topk", 0, [0.1, 0.2, 0.3])
    rows = table.to_markdown(table.build(group(find([tmp_path])))).splitlines()
    titles = (
        "method | test accuracy (%) | best (%) | test loss | uplink | downlink | broadcast | total bits | time | seeds"
    )
    assert rows[0] == f"| {titles} |"
    assert rows[2] == (
        "| sign | 70.00 ± 14.14 | 75.00 ± 21.21 | 0.300 ± 0.141 | 1.00 | 32.0 | 3.20 | 66.0 kbit | 8.00 s | 2 |"
    )
    assert rows[3] == "| topk | 30.00 | 30.00 | 0.700 | 1.00 | 32.0 | 3.20 | 66.0 kbit | 8.00 s | 1 |"


def test_paper_counts_stand_beside_the_true_ones_only_where_given(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("sign", 0, [0.1, 0.8])
    make_run("topk", 0, [0.1, 0.3], extra={"paper/bpp/uplink": 0.5})
    built = table.build(group(find([tmp_path])))
    titles = [column.title for column in built.columns]
    assert titles[3:6] == ["uplink", "uplink (paper)", "downlink"]
    rows = table.to_markdown(built).splitlines()
    assert rows[2].split(" | ")[5] == "–"
    assert rows[3].split(" | ")[5] == "0.500"


def test_csv_holds_raw_numbers_and_a_diverged_seed_shows(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("sign", 0, [0.1, 0.8])
    make_run("sign", 1, [0.1, 0.7])
    folder = make_run("topk", 0, [0.1, 0.8])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"round": 20, "test/accuracy": 0.1, "test/loss": null, "nonfinite": {"test/loss": "nan"}}\n')
    sign, topk = csv.DictReader(io.StringIO(table.to_csv(table.build(group(find([tmp_path]))))))
    assert float(sign["test_accuracy"]) == pytest.approx(0.75, abs=1e-15)
    assert float(sign["test_accuracy_std"]) == pytest.approx(0.1 / math.sqrt(2), abs=1e-15)
    assert (sign["bits_total"], sign["seeds"]) == ("33000.0", "2")
    assert (topk["test_loss"], topk["test_loss_std"], topk["best_test_accuracy"]) == ("nan", "", "0.8")
