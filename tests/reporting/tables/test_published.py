"""Ours beside what papers printed: the tables as printed, who stands for which row, the differences."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from fedcomp.records.reader import RecordedRun, read_runs
from fedcomp.reporting.group import group
from fedcomp.reporting.tables.formats import to_csv
from fedcomp.reporting.tables.published import (
    Printed,
    compare,
    load,
    meets,
    papers,
    rows,
    to_markdown,
    without_counterpart,
)
from tests.looped import looped
from tests.records.synthetic_runs import MakeRun

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


@looped(
    "condition, holds",
    [
        ("dataset=mnist;model=lenet5", True),
        ("dataset=mnist;model=cnn4", False),
        ("partition=dirichlet;partition.alpha=0.10", True),
        ("partition.alpha=0.3", False),
        ("label=FedAvg | algorithm=fedavg;compressor=sign", True),
        ("label=BiCompFL | algorithm=fedavg;compressor=dense", False),
        ("label=ours", True),
        ("compressor.precision=float32", False),
        ("downlink.k=null", True),
        ("downlink.k=3", False),
        ("compressor.k=null", False),
        ("downlink.feedback=null", False),
    ],
)
def test_conditions(condition: str, holds: bool) -> None:
    config = {**SETTING, "compressor": SIGN, "downlink": {**SIGN, "k": None}, "label": "Ours"}
    assert meets(RecordedRun(Path("x"), config, 0, "finished"), condition) is holds


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
    names = without_counterpart(groups, pairs)
    shown = rows("bicompfl", pairs, names)
    assert dict(zip(shown.titles[5:8], shown.cells[0][5:8])) == {
        "printed (%)": "91.1",
        "ours, best (%)": "94.00 ± 1.41",
        "difference": "+2.90",
    }
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
