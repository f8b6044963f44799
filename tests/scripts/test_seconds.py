"""Seconds to an accuracy: which runs are asked for, what is added to their records, who is the fastest."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedcomp.records.reader import read_runs
from scripts.reproduce.clocks import clock_metric
from scripts.reproduce.records import Folder, Run
from scripts.reproduce.same_bits_search import COMMITTED
from scripts.reproduce.seconds import CLOCKS, RUNS, SEARCH, commands, draw, fastest, reached

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"


def test_every_method_with_a_choice_is_run_without_a_limit_of_bits() -> None:
    found = commands(SEARCH, COMMITTED[SEARCH])
    chosen = {word for command in found for word in command.split() if "method@_global_" in word}
    assert len(found) == 3 * len(chosen) > 60
    assert all("max_bits=null" in command and "record_traffic=true" in command for command in found)
    (dense,) = (command for command in found if command.endswith("seed=0") and "_global_=fedavg " in command)
    assert "algorithm.weights=uniform client.lr=0.1 client.steps=60" in dense
    assert commands(SEARCH, replace(COMMITTED[SEARCH], runs=())) == []


def test_records_have_the_times_of_every_clock(fedcomp, tmp_path: Path) -> None:
    options = ["dataset=digits", "num_clients=4", "rounds=2", "eval_every=1", "name=timed", "record_traffic=true"]
    assert fedcomp(*options, f"output_root={tmp_path}") == 0
    folder = Folder(tmp_path / "records")
    folder.update(RUNS, tmp_path / "timed")
    (run,) = folder[RUNS]
    (recorded,) = read_runs([tmp_path / "timed"])
    assert len(run.lines) == len(recorded.lines) == 3
    (up,) = {line["bits/uplink"] / line["round"] / 4 for line in recorded.lines if line["round"]}  # of one client
    (down,) = {line["bits/downlink"] / line["round"] / 4 for line in recorded.lines if line["round"]}
    slow, fast, phone = (clock_metric(*clock) for clock in (CLOCKS[0], CLOCKS[1], CLOCKS[3]))
    assert abs(run.lines[2][slow] - 2 * (up / 1e7 + down / 1e7 + 0.02)) < 1e-5
    assert abs(run.lines[2][fast] - 2 * (up / 1e7 + down / 1e8 + 0.02)) < 1e-5
    assert run.lines[2][phone] > run.lines[2][slow] + 2e-3


def test_the_fastest_and_who_is_level_with_it() -> None:
    times = {"a": [1.0, 1.2, 1.1], "b": [1.15, 1.25, 1.2], "c": [2.0, 2.1, 2.2], "d": [0.9, 3.0, 1.4]}
    assert fastest(times) == ["a", "b", "d"]
    assert fastest({"a": [1.0], "b": [1.1]}) == ["a"]


def test_the_first_evaluation_with_the_target_counts() -> None:
    lines = [
        {"round": 0.0, "test/accuracy": 0.1},
        {"round": 5.0, "test/accuracy": 0.85},
        {"round": 10.0, "test/accuracy": 0.8},
    ]
    assert reached("round")(Run({}, lines)) == 5.0
    assert reached("round")(Run({}, lines[:1])) is None


def test_the_picture_has_a_dot_for_each_method_and_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[Any] = []
    monkeypatch.setattr("fedcomp.display.figure.save", lambda page, path: saved.append(page))
    draw(Folder(RESULTS / "records"), tmp_path)
    (page,) = saved
    assert len(page.axes) == 3
    for axes in page.axes:
        dots = [line for line in axes.lines if line.get_marker() == "o"]
        assert len(dots) == 2 * len(axes.get_yticks()) == 2 * 18
        assert {dot.get_markerfacecolor() == "white" for dot in dots[:18]} == {False}
        assert {dot.get_markerfacecolor() for dot in dots[18:]} == {"white"}
        assert all(0.5 < dot.get_xdata()[0] < 250 for dot in dots)
    assert page.axes[0].lines[1].get_xdata()[0] == pytest.approx(20.1, abs=0.1)  # FedAvg's, as in the page's table
    draw(Folder(tmp_path), tmp_path)  # nothing was run
    assert len(saved) == 1
