"""`repeats=R` from the command line: files, repetition 0, a study that was stopped, what is refused."""

import json
from pathlib import Path

import pytest

from fedcomp.records.metrics_file import REPETITIONS, Record, read_repetitions
from fedcomp.simulation.monte_carlo.study import MonteCarloStudy
from tests.interrupted import before_round
from tests.left import assert_same_run, folder_of, record
from tests.raising import raising
from tests.thorough import thorough

REGRESSION = ("algorithm=fedavg_svrg", "dataset=diabetes", "model=linear", "client.lr=0.02", "quiet=true")
SHORT = (*REGRESSION, "rounds=6", "pictures=false", "checkpoint_every=2")


@pytest.mark.parametrize("options", [(), ("wire=packed",)], ids=["together", "one after another"])
def test_repetition_0_is_the_run_without_repeats(fedcomp, tmp_path: Path, options) -> None:
    """And all of them have a line, a curve, a mean and a variance; who holds what differs too."""
    for repeats in (1, 4):
        assert fedcomp(*SHORT, *options, f"repeats={repeats}", f"output_root={tmp_path / str(repeats)}") == 0
    alone, each = record(tmp_path / "1"), read_repetitions(folder_of(tmp_path / "4"))
    assert not (folder_of(tmp_path / "1") / "repetitions.jsonl").exists()
    for line, mean in zip(alone, record(tmp_path / "4")):
        values = each[line["round"]]["test/loss"]
        assert len(set(values)) == 4
        assert values[0] == pytest.approx(line["test/loss"], rel=1e-5)
        assert mean["test/loss"] == pytest.approx(sum(values) / 4)
        assert mean["variance/test/loss"] > 0
        assert each[line["round"]]["test/excess"][0] == pytest.approx(line["test/excess"], rel=1e-4)
    assert {"cep/plane", "cep/theta", "cep/loss", "participation/max_inverse", "gradients"} <= mean.keys()
    assert 0 < mean["bits/uplink"] < 6 * 20 * 32 * 11


@pytest.mark.parametrize("at", [*thorough([1]), 4])
def test_a_study_that_was_stopped_ends_as_an_unbroken_one(fedcomp, tmp_path: Path, monkeypatch, at: int) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert fedcomp(*SHORT, "repeats=3", f"output_root={whole}") == 0
    monkeypatch.setattr("fedcomp.simulation.monte_carlo.study._verified_vmap", lambda repetitions: None)
    with before_round(at + 1, raising(KeyboardInterrupt()), MonteCarloStudy):
        assert fedcomp(*SHORT, "repeats=3", f"output_root={broken}") == 130
    for folder in (broken, tmp_path / "apart"):
        assert fedcomp(*SHORT, "repeats=3", f"output_root={folder}") == 0
    assert_same_run(broken, tmp_path / "apart")
    for line, other in zip(record(whole), record(broken)):
        assert line == pytest.approx(other, rel=1e-3, abs=1e-7)


def test_a_fixed_partition_is_the_same_in_all_repetitions(fedcomp, tmp_path: Path) -> None:
    assert fedcomp(*SHORT, "repeats=2", "partition.seed=0", "dtype=float64") == 0
    last = read_repetitions(folder_of(tmp_path))[6]
    assert len(last["optimum/0"]) == 1
    assert last["theta/0"][0] != last["theta/0"][1]


def test_the_file_drops_later_and_halfrecord(tmp_path: Path) -> None:
    file = Record(tmp_path, REPETITIONS)
    file.truncate_after(3)
    assert read_repetitions(tmp_path) == {}
    assert not file.path.exists()
    for round in range(4):
        file.append({"round": round, "test/loss": [1.0, float(round)], "x": [float("nan")]})
    with file.path.open("ab") as end:
        end.write(b'{"round": 4, "test/l')
    assert sorted(read_repetitions(tmp_path)) == [0, 1, 2, 3]
    file.truncate_after(2)
    found = read_repetitions(tmp_path)
    assert found[2]["test/loss"] == [1, 2]
    assert found[2]["x"][0] != found[2]["x"][0]
    assert sorted(found) == [0, 1, 2]
    assert all(json.loads(line)["x"] == [None] for line in file.path.read_text().splitlines())
    file.path.write_text('{"rounds": 1}\n')
    with pytest.raises(ValueError, match=r"repetitions.jsonl, line 1 is no record"):
        read_repetitions(tmp_path)
