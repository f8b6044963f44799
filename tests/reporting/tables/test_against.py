"""Ours beside others: paired differences over seeds, the order of rows, and the tables that papers printed."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from fedcomp.records.reader import read_runs
from fedcomp.reporting.__main__ import main
from fedcomp.reporting.group import group
from fedcomp.reporting.labels import flatten
from fedcomp.reporting.tables import against
from fedcomp.reporting.tables.formats import to_csv
from fedcomp.reporting.tables.published import Printed, compare, load, meets, papers, rows, to_markdown
from fedcomp.reporting.tables.published import without_counterpart as without
from fedcomp.reporting.tables.quantities import Column
from tests.looped import looped
from tests.records.synthetic_runs import MakeRun

pytestmark = pytest.mark.usefixtures("no_pictures")


def test_the_interval_is_students() -> None:
    """Differences 1, 2, 3: mean 2, s = 1, t(2, 0.975) = 4.30265, half-width 4.30265 / sqrt(3)."""
    low, high = against.interval([1.0, 2.0, 3.0]) or (0, 0)
    assert (low, high) == (pytest.approx(2 - 2.48414, abs=1e-5), pytest.approx(2 + 2.48414, abs=1e-5))
    assert against.interval([1.0]) is None
    assert against.interval([0.5, 0.5]) == (0.5, 0.5)
    column = Column("x", "x", lambda run: None, lambda value: f"{value:.1f}", True)
    assert [against._signed(column, value) for value in (-0.5, 0.0, 0.5)] == ["-0.5", "+0.0", "+0.5"]


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


def test_a_difference_over_some_of_the_pairs_says_so(make_run: MakeRun, tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        make_run("dense", seed, [0.1, 0.5])
        lines = [{"test/accuracy": 0.6, **({"test/loss": 0.25} if seed < number else {})} for number in (2, 2)]
        make_run("sign", seed, [], lines=lines)
        make_run("topk", seed, [], lines=[{"test/accuracy": 0.6, **({"test/loss": 0.25} if not seed else {})}])
    built = against.rows(group(read_runs([tmp_path])), "dense")
    found = [dict(zip(built.titles, row))["test loss"] for row in built.cells]
    assert found == ["-0.250 [-0.250, -0.250] (2 of 3)", "-0.250 (1 of 3)"]


def test_a_difference_to_a_run_without_a_number_has_no_sign_and_no_interval(make_run: MakeRun, tmp_path: Path) -> None:
    for seed in (0, 1):
        make_run("dense", seed, [0.1, 0.5])
        make_run("sign", seed, [], lines=[{"test/accuracy": 0.6, "test/loss": float("nan")}])
    assert main([str(tmp_path), "--against", "dense", "--out", str(tmp_path / "r")]) == 0
    (row,) = csv.DictReader((tmp_path / "r" / "against.csv").open())
    assert (row["test_loss_difference"], row["test_loss_low"], row["test_loss_high"]) == ("nan", "", "")
    assert "| nan |" in (tmp_path / "r" / "against.md").read_text()


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


SETTING: dict[str, Any] = {
    "num_clients": 10,
    "algorithm": {"_target_": "fedcomp.algorithm.fedavg.FedAvg"},
    "dataset": {"_target_": "fedcomp.dataset.images.mnist.load"},
    "model": {"_target_": "fedcomp.model.networks.cnn.lenet5"},
    "partition": {"_target_": "fedcomp.partition.dirichlet.Dirichlet", "alpha": 0.1},
    "participation": {"_target_": "fedcomp.participation.full.Full"},
}
DENSE = {"_target_": "fedcomp.compressor.dense.Dense", "precision": "float32", "feedback": "none"}
SIGN = {"_target_": "fedcomp.compressor.quantisers.sign.Sign", "feedback": "error"}


def test_tables_as_printed() -> None:
    assert papers() == ["bicompfl", "fedmrn"]
    printed = load("bicompfl")
    assert len(printed) == 8 * 13
    (row,) = [row for row in printed if row.table == "8" and row.method == "BiCompFL-GR-Adaptive"]
    assert (row.accuracy, row.rates) == (0.984, {"bpp": 0.27, "bpp_bc": 0.051, "uplink": 0.026, "downlink": 0.24})
    printed = load("fedmrn")
    assert len(printed) == 10 * 4 * 3 + 4 * 2
    (row,) = [row for row in printed if (row.table, row.dataset, row.method) == ("3", "PascalVOC", "FedMRN")]
    assert (row.accuracy, row.accuracy_std) == (0.542, 0.001)
    (row,) = [row for row in printed if (row.method, row.dataset, row.partition) == ("FedMRNS", "SVHN", "Non-IID-2")]
    assert (row.accuracy, row.accuracy_std, row.rates) == (0.887, 0.004, {})
    with pytest.raises(ValueError, match="allowed are bicompfl, fedmrn"):
        load("fedavg")


HOLDS = [
    *["dataset=mnist;model=lenet5", "partition=dirichlet;partition.alpha=0.10", "label=ours", "downlink.k=null"],
    "label=FedAvg | algorithm=fedavg;compressor=sign",
]
FAILS = [
    *["dataset=mnist;model=cnn4", "partition.alpha=0.3", "compressor.precision=float32", "downlink.k=3"],
    *["compressor.k=null", "downlink.feedback=null", "label=BiCompFL | algorithm=fedavg;compressor=dense"],
]


@looped("condition", [*HOLDS, *FAILS])
def test_conditions(condition: str) -> None:
    config = {**SETTING, "compressor": SIGN, "downlink": {**SIGN, "k": None}, "label": "Ours"}
    assert meets(flatten(config), condition) is (condition in HOLDS)


def test_every_condition_names_parts_and_keys_that_a_config_can_have() -> None:
    for paper in papers():
        for row in load(paper):
            for term in f"{row.where};{row.match}".replace("|", ";").split(";"):
                key = term.split("=")[0].strip()
                assert key.split(".")[0] in {*SETTING, "compressor", "downlink", "label"}, term


def test_ours_beside_the_printed_row(make_run: MakeRun, tmp_path: Path) -> None:
    bits = {"bpp/uplink": 32.0, "bpp/downlink": 32.0, "bpp/broadcast": 3.2}
    for seed, accuracy in enumerate((0.93, 0.95)):
        config = {**SETTING, "compressor": DENSE, "downlink": DENSE}
        make_run("dense", seed, [0.1, accuracy, 0.5], config=config, extra=bits)
    counted = {
        "bpp/uplink": 1.05, "bpp/downlink": 1.05, "bpp/downlink_per_receiver": 1.05, "bpp/broadcast": 0.105,
        "paper/bpp/uplink": 1.0, "paper/bpp/downlink_per_receiver": 1.0, "paper/bpp/broadcast": 0.1,
    }  # fmt: skip
    make_run("sign", 0, [0.1, 0.9], config={**SETTING, "compressor": SIGN, "downlink": SIGN}, extra=counted)
    make_run("topk", 0, [0.1, 0.9], config=SETTING)
    groups = group(read_runs([tmp_path]))
    pairs = compare(groups, [row for row in load("bicompfl") if row.table == "6"])
    assert [pair.printed.method for pair in pairs if pair.ours is not None] == ["FedAvg", "Doublesqueeze"]
    names = without(groups, pairs)
    shown = rows("bicompfl", pairs, names)
    assert shown.titles[5:8] == ["printed (%)", "ours, best (%)", "difference"]
    assert shown.cells[0][5:8] == ["91.1", "94.00 ± 1.41", "+2.90"]
    assert shown.cells[1][8:] == ["2", "2.00", "+0", "2.10"]
    assert len(names) == 1
    assert names[0].startswith("topk")
    table = list(csv.DictReader(io.StringIO(to_csv(shown))))
    assert len(table) == 13
    assert float(table[0]["accuracy_difference"]) == pytest.approx(0.029)
    assert [table[1][key] for key in ("printed_bpp_bc", "bpp_bc", "true_bpp_bc")] == ["1.1", "1.1", "1.155"]
    assert (table[2]["method"], table[2]["ours"], table[2]["accuracy"]) == ("Memsgd", "", "")
    text = to_markdown("bicompfl", pairs, names)
    assert "Printed rows without a run of ours: 11" in text
    assert "- Table 6, MNIST LeNet5 non-iid: M3" in text
    assert isinstance(pairs[0].printed, Printed)


def test_the_downlink_compared_is_that_of_a_receiver(make_run: MakeRun, tmp_path: Path) -> None:
    """With 2 of 20 clients a lossy broadcast is charged tenfold to those who take part: no paper prints that."""
    part = {**SETTING, "participation": {"_target_": "fedcomp.participation.uniform.Uniform"}}
    bits = {"bpp/uplink": 1.0, "bpp/downlink": 10.0, "bpp/broadcast": 0.5}
    heard = {"bpp/downlink_per_receiver": 1.05, "paper/bpp/uplink": 1.0, "paper/bpp/downlink_per_receiver": 1.0}
    make_run("sign", 0, [0.1, 0.9], config=part, extra={**bits, **heard})
    printed = Printed("1", "MNIST", "LeNet5", "iid", "Sign", "dataset=mnist", "dataset=mnist", 0.9, 0.0, {"bpp": 2.0})
    (sign,) = compare(group(read_runs([tmp_path])), [printed])
    assert [sign.rates[name].mean for name in ("downlink", "bpp")] == [1.0, 2.0]
    assert [sign.true_rates[name].mean for name in ("downlink", "bpp")] == [1.05, 2.05]
