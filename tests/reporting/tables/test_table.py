"""The table's numbers, by hand, and how they are written."""

import csv
import io
import math
import re
from pathlib import Path

import pytest

from fedcomp.display import units
from fedcomp.records.reader import read_runs
from fedcomp.reporting import metrics
from fedcomp.reporting.__main__ import main
from fedcomp.reporting.group import group
from fedcomp.reporting.tables import formats, latex, quantities, table
from fedcomp.reporting.tables.target import parse_target
from tests.looped import looped
from tests.records.synthetic_runs import MakeRun


def test_mean_and_sample_deviation_by_hand() -> None:
    assert quantities.mean_over_seeds([1.0, 2.0, 4.0, 5.0]) == quantities.Mean(3.0, math.sqrt(10 / 3), 4)
    assert quantities.mean_over_seeds([7.0]) == quantities.Mean(7.0, None, 1)
    assert math.isnan(quantities.mean_over_seeds([1.0, math.nan]).mean)
    assert quantities.mean_over_seeds([1.0, math.inf]).mean == math.inf
    assert math.isnan(quantities.mean_over_seeds([math.inf, -math.inf]).mean)


def test_a_mean_is_written_as_far_as_its_deviation_says_something() -> None:
    for mean, deviation, text in [
        (4.58204, 0.00437, "4.5820 ± 0.0044"),
        (4.0, 0.0996, "4.00 ± 0.10"),
        (123.4, 11.2, "123 ± 11"),
        (1234.0, 432.1, "1234 ± 432"),
        (0.0002971, 7.46e-6, "0.0002971 ± 0.0000075"),
        (2.7e-6, 1e-8, "2.70e-06 ± 1.00e-08"),
        (0.3, 0.0, "0.300 ± 0"),
        (math.nan, math.nan, "nan ± nan"),
    ]:
        assert units.mean_and_deviation(mean, deviation) == text


def test_markdown(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("sign", 0, [0.1, 0.9, 0.8])
    make_run("sign", 1, [0.1, 0.5, 0.6])
    make_run("topk", 0, [0.1, 0.2, 0.3])
    rows = formats.to_markdown(table.build(group(read_runs([tmp_path])))).splitlines()
    quality = "test accuracy (%) | best (%) | test loss"
    titles = f"method | {quality} | uplink | downlink | total | broadcast | total bits | time | seeds"
    assert rows[0] == f"| {titles} |"
    assert rows[2] == (
        "| sign | **70.00 ± 14.14** | **75.00 ± 21.21** | **0.30 ± 0.14** "
        "| 1.00 | 32.0 | 33.0 | 3.20 | 66.0 kbit | 8.00 s | 2 |"
    )
    assert rows[3] == "| topk | 30.00 | 30.00 | 0.700 | 1.00 | 32.0 | 33.0 | 3.20 | 66.0 kbit | 8.00 s | 1 |"


def test_the_best_mean_is_bold_to_the_last_digit_that_is_shown(make_run: MakeRun, tmp_path: Path) -> None:
    for method, losses in (("sign", (0.2391, 0.2393)), ("topk", (0.2389, 0.2390)), ("dense", (0.23, 0.25))):
        for seed, loss in enumerate(losses):
            make_run(method, seed, [], lines=[{"test/loss": loss}])
    rows = formats.to_markdown(table.build(group(read_runs([tmp_path])))).splitlines()[2:]
    found = {row.split(" | ")[1].split(" ± ")[0] for row in rows}
    assert found == {"0.23920", "**0.238950", "0.240"}


def test_paper_counts_stand_in_brackets_and_in_columns_of_the_csv(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("sign", 0, [0.1, 0.8])
    make_run("topk", 0, [0.1, 0.3], extra={"paper/bpp/uplink": 0.5, "paper/bpp/downlink": 32.0})
    built = table.build(group(read_runs([tmp_path])))
    rows = formats.to_markdown(built).splitlines()
    assert [row.split(" | ")[4] for row in rows[2:4]] == ["1.00", "1.00 (0.500)"]
    assert rows[3].split(" | ")[5] == "32.0"  # counted alike: nothing in brackets
    sign, topk = csv.DictReader(io.StringIO(formats.to_csv(built)))
    assert (sign["bpp_uplink"], sign["paper_bpp_uplink"]) == ("1.0", "1.0")
    assert (topk["bpp_uplink"], topk["paper_bpp_uplink"]) == ("1.0", "0.5")
    assert "paper_bpp_downlink" not in sign


def test_the_downlink_of_a_receiver_stands_beside_that_of_a_participant(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("dense", 0, [0.1, 0.8], extra={"bpp/downlink": 32.0, "bpp/downlink_per_receiver": 32.0})
    assert "downlink per receiver" not in table.build(group(read_runs([tmp_path]))).titles
    paper = {"paper/bpp/downlink": 10.0, "paper/bpp/downlink_per_receiver": 1.0}
    make_run("sign", 0, [0.1, 0.8], extra={"bpp/downlink": 10.5, "bpp/downlink_per_receiver": 1.05, **paper})
    built = table.build(group(read_runs([tmp_path])))
    dense, sign = (dict(zip(built.titles, row)) for row in built.cells)
    assert (dense["downlink"], dense["downlink per receiver"]) == ("32.0", "32.0")
    assert (sign["downlink"], sign["downlink per receiver"]) == ("10.5 (10.0)", "1.05 (1.00)")


def test_a_paper_that_leaves_out_the_downlink_has_no_total_in_brackets(make_run: MakeRun, tmp_path: Path) -> None:
    both = {"paper/bits/uplink": 500, "paper/bits/downlink": 32_000, "paper/bits/total": 32_500}
    make_run("topk", 0, [0.1, 0.8], extra={**both, "paper/bpp/downlink": 32.0, "paper/bpp/total": 32.5})
    one = {"paper/bits/uplink": 500, "paper/bits/downlink": 0, "paper/bpp/downlink": 0.0}
    make_run("fedscalar", 0, [0.1, 0.8], extra=one)
    built = table.build(group(read_runs([tmp_path])))
    scalar, topk = (dict(zip(built.titles, row)) for row in built.cells)
    assert (topk["downlink"], topk["total"], topk["total bits"]) == ("32.0", "33.0 (32.5)", "33.0 kbit (32.5 kbit)")
    assert (scalar["downlink"], scalar["total"], scalar["total bits"]) == ("32.0 (0)", "33.0", "33.0 kbit")


def test_csv_holds_raw_numbers_and_a_diverged_seed_shows(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("sign", 0, [0.1, 0.8])
    make_run("sign", 1, [0.1, 0.7])
    folder = make_run("topk", 0, [0.1, 0.8])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"round": 20, "test/accuracy": 0.1, "test/loss": null, "nonfinite": {"test/loss": "nan"}}\n')
    sign, topk = csv.DictReader(io.StringIO(formats.to_csv(table.build(group(read_runs([tmp_path]))))))
    assert float(sign["test_accuracy"]) == pytest.approx(0.75, abs=1e-15)
    assert float(sign["test_accuracy_std"]) == pytest.approx(0.1 / math.sqrt(2), abs=1e-15)
    assert (sign["bits_total"], sign["seeds"]) == ("33000.0", "2")
    assert (topk["test_loss"], topk["test_loss_std"], topk["best_test_accuracy"]) == ("nan", "", "0.8")


@pytest.mark.usefixtures("no_pictures")
def test_the_mean_of_the_last_ten_evaluations_where_there_are_ten(make_run: MakeRun, tmp_path: Path, capsys) -> None:
    make_run("sign", 0, [0.9, 0.8, *(0.1 * step for step in range(10))])
    make_run("topk", 0, [0.9] * 10)  # nine after round 0
    built = table.build(group(read_runs([tmp_path])))
    assert built.titles[2:4] == ["best (%)", "mean of last 10 (%)"]
    assert [row[3] for row in built.cells] == ["45.00", "–"]
    assert [row["late_test_accuracy"][:4] for row in csv.DictReader(io.StringIO(formats.to_csv(built)))] == ["0.45", ""]
    assert main([str(tmp_path), "--out", str(tmp_path / "report")]) == 0
    assert "mean of last 10" not in capsys.readouterr().out
    short = table.build([one for one in group(read_runs([tmp_path])) if one.label == "topk"])
    assert "mean of last 10 (%)" not in short.titles


def test_a_mean_over_some_of_the_seeds_says_so(make_run: MakeRun, tmp_path: Path) -> None:
    """A run of an earlier version may lack a metric, and a shorter one the mean of its last evaluations."""
    make_run("sign", 0, [], lines=[{"test/accuracy": 0.5, "test/loss": 1.0}] * 11)
    make_run("sign", 1, [], lines=[{"test/accuracy": 0.5}] * 3)
    built = table.build(group(read_runs([tmp_path])))
    (row,) = (dict(zip(built.titles, row)) for row in built.cells)
    assert row["test accuracy (%)"] == "50.00 ± 0.00"
    assert (row["test loss"], row["mean of last 10 (%)"]) == ("1.00 (1 of 2)", "50.00 (1 of 2)")


def test_a_target_is_reached_by_each_seed_at_its_own_round(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("sign", 0, [0.1, 0.6, 0.9])  # 0.6 at round 10
    make_run("sign", 1, [0.1, 0.5, 0.7])  # at round 20
    make_run("sign", 2, [0.1, 0.2, 0.3])  # never
    make_run("topk", 0, [0.1, 0.2, 0.3])
    groups = group(read_runs([tmp_path]))
    built = table.build(groups, parse_target("0.6", groups))
    rows = [row.split(" | ") for row in formats.to_markdown(built).splitlines()]
    assert rows[0][9:11] == ["rounds to 60 %", "bits to 60 %"]
    assert rows[2][9:11] == ["15 ± 7.1 (2 of 3)", "49.5 kbit (2 of 3)"]
    assert rows[3][9:11] == ["not reached (0 of 1)"] * 2
    sign, topk = csv.DictReader(io.StringIO(formats.to_csv(built)))
    assert (sign["rounds_to_target"], sign["bits_to_target"], sign["seeds_reached"]) == ("15.0", "49500.0", "2")
    assert (topk["rounds_to_target"], topk["seeds_reached"]) == ("", "0")
    loss = parse_target("test/loss=0.4", groups)
    assert [loss.line(run) is not None for run in groups[0].runs] == [True, True, False]


def test_a_target_without_a_metric_is_an_accuracy_where_some_runs_have_a_mean_iou_too(
    make_run: MakeRun, tmp_path: Path
) -> None:
    """Segmentation beside classification; a regression has neither, so that it did not fail to reach it."""
    make_run("sign", 0, [], lines=[{"test/accuracy": 0.7, "test/miou": 0.2}])
    make_run("topk", 0, [], lines=[{"test/accuracy": 0.9}])
    make_run("randk", 0, [], lines=[{"test/loss": 0.9}])
    groups = group(read_runs([tmp_path]))
    built = table.build(groups, parse_target("0.8", groups))
    rows = {row["method"]: row for row in (dict(zip(built.titles, row)) for row in built.cells)}
    found = {method: (row["test accuracy (%)"], row["rounds to 80 %"]) for method, row in rows.items()}
    assert found == {"sign": ("70.00", "not reached (0 of 1)"), "topk": ("90.00", "0"), "randk": ("–", "–")}
    alone = [one for one in groups if one.label == "sign"]
    assert str(parse_target("0.5", alone)) == "test mean IoU 0.500"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("90", "for 90 %"),
        ("x", "no number"),
        ("nan", "no number"),
        ("test/distance=1", "there are: test/loss, test/accuracy, train/loss"),
        ("trian/loss=0.3", r"no run recorded a quality trian/loss; did you mean 'train/loss'\?"),
        ("bits/total=3", "no run recorded a quality bits/total"),
    ],
)
def test_a_wrong_target_is_one_clear_line(make_run: MakeRun, tmp_path: Path, text: str, said: str) -> None:
    make_run("sign", 0, [0.1, 0.6], extra={"train/loss": 1.0})
    with pytest.raises(ValueError, match=said):
        parse_target(text, group(read_runs([tmp_path])))


def test_any_metric_takes_the_place_of_accuracy_and_the_smaller_is_better(make_run: MakeRun, tmp_path: Path) -> None:
    lines = [{"test/distance": 3.0, "test/objective": 9.0}, {"test/distance": 5.0, "test/objective": 7.0}]
    make_run("sign", 0, [], lines=lines)
    make_run("topk", 0, [], lines=[{"mse": 0.5, "mse/closed_form": 0.25}])
    built = table.build(group(read_runs([tmp_path])))
    assert built.titles[1:6] == ["test distance", "best test distance", "test objective", "mse", "mse closed form"]
    rows = built.cells
    assert rows[0][1:5] == ["5.00", "3.00", "7.00", "–"]
    assert rows[1][1:6] == ["–", "–", "–", "0.500", "0.250"]


def test_method_metrics_and_training_loss_are_no_quality(make_run: MakeRun, tmp_path: Path) -> None:
    """Where runs are tested."""
    make_run("sign", 0, [0.1, 0.6], extra={"estimate/excess": 3.0, "train/loss": 1.0, "expected/accuracy": 0.25})
    titles = table.build(group(read_runs([tmp_path]))).titles[1:]
    assert titles[:4] == ["test accuracy (%)", "best (%)", "test loss", "expected accuracy (%)"]
    assert not [title for title in titles if "excess" in title or "train" in title]


def test_latex_knows_every_character_of_our_own_titles() -> None:
    text = "".join(Path(str(one.__file__)).read_text() for one in (metrics, formats, quantities, table, latex))
    ours = {character for character in text if not character.isascii()}
    assert "−" in ours
    assert not [character for character in ours if latex.escape(character) == "?"]


@looped(
    "text, wanted",
    [
        ("top_k $x_{k}$ & $y^2$", r"top\_k \$x\_\{k\}\$ \& \$y\textasciicircum{}2\$"),
        ("top_k $x_{k}$ or $y^2$", r"top\_k $x_{k}$ or $y^2$"),
        ("top $x_{k$ of", r"top \$x\_\{k\$ of"),
        ("$5", r"\$5"),
        ("a\nb", "a b"),
    ],
)
def test_latex_keeps_math(text: str, wanted: str) -> None:
    assert latex.escape(text) == wanted


def test_latex_compiles_as_far_as_a_reader_can_tell(make_run: MakeRun, tmp_path: Path) -> None:
    odd = r"50 % of a_b & {c} #1 $x$ \d ~ ^ ↑↓ é 中"
    for alpha in (0.1, 1.0):
        config = {"partition": {"_target_": "fedcomp.partition.dirichlet.Dirichlet", "alpha": alpha}}
        make_run("sign", 0, [0.1, 0.8], config={"label": odd, **config}, folder=f"a{alpha}")
        make_run("topk", 0, [0.1, 0.7 + alpha / 10], config=config, extra={"paper/bpp/uplink": 0.5}, folder=f"b{alpha}")
    text = latex.to_latex(table.build(group(read_runs([tmp_path]))))
    body = [line for line in text.splitlines() if not line.startswith("%")]
    assert body[0] == r"\begin{tabular}{@{}llrrrrrrrrrr@{}}"
    assert body[-1] == r"\end{tabular}"
    rows = [line for line in body if line.endswith(r"\\")]
    for row in rows:
        assert len(re.findall(r"(?<!\\)&", row)) == 11
        assert not re.search(r"(?<!\\)[%#_]", row)
        assert row.count("$") % 2 == 0 or r"\$" in row
        assert all(character.isascii() or character == "é" for character in row)
        plain = re.sub(r"\\[{}]", "", row)
        depth = 0
        for character in plain:
            depth += {"{": 1, "}": -1}.get(character, 0)
            assert depth >= 0
        assert depth == 0
    assert r"50 \% of a\_b \& \{c\} \#1 \$x\$ \textbackslash{}d \textasciitilde{} \textasciicircum{}" in rows[1]
    assert body.count(r"\midrule") == 2  # under the head, and between the two settings
    assert r"\textbf{80.00}" in rows[1]  # 80.00 against 71.00, in its own setting
    assert r"\textbf{71.00}" not in rows[2]
    assert rows[3].count(r"\textbf{80.00}") == 0  # a tie of all is no win
    assert r"1.00 (0.500)" in rows[2]


def test_seconds_to_a_target_are_of_runs_with_a_network(make_run: MakeRun, tmp_path: Path) -> None:
    """A run without one has no seconds; to say that it did not reach the target would be wrong."""
    make_run("sign", 0, [0.1, 0.9], extra={"time/total": 3.0})
    make_run("topk", 0, [0.1, 0.9])
    make_run("qsgd", 0, [0.1, 0.2], extra={"time/total": 3.0})
    groups = group(read_runs([tmp_path]))
    whole = table.build(groups, parse_target("0.8", groups))
    found = [dict(zip(whole.titles, row)) for row in whole.cells]
    wanted = {"sign": "3.00 s", "topk": "–", "qsgd": "not reached (0 of 1)"}
    assert {row["method"]: row["seconds to 80 %"] for row in found} == wanted
