"""Figures of the pages of results: entropies and bounds of limits.md, seconds of fine-tuning and to an accuracy."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedcomp.compressor.quantisers.sign import Sign
from fedcomp.records.reader import read_runs
from fedcomp.wire import Field
from fedcomp.wire.coding import Ascending, Bitmap, Float, Rice, Unsigned
from scripts.limits import Row, entropy_of, measure
from scripts.reproduce import fine_tuning
from scripts.reproduce.clocks import clock_metric
from scripts.reproduce.experiment import Experiment
from scripts.reproduce.fine_tuning import RATE, ROLES
from scripts.reproduce.fine_tuning_search import label
from scripts.reproduce.records import ABOUT, Folder, Records, Run
from scripts.reproduce.same_bits_search import COMMITTED
from scripts.reproduce.seconds import CLOCKS, RUNS, SEARCH, commands, draw, fastest, not_run, reached
from tests.looped import looped


@looped(
    "field, wanted",
    [
        (Field(torch.tensor([[0, 0, 0, 0]]), Unsigned(3)), 0),
        (Field(torch.tensor([[0, 1, 2, 3]]), Unsigned(3)), 8),
        (Field(torch.tensor([[0, 0, 0, 1]]), Unsigned(1)), 4 * (0.75 * math.log2(4 / 3) + 0.25 * 2)),
        (Field(torch.tensor([[0.0, 0.0]]), Float()), 64),
        (Field(torch.tensor([[2, 5]]), Ascending(64)), math.log2(64 * 63 / 2)),
        (Field(torch.tensor([[2, 2]]), Rice(4, 64)), 10),  # as it is sent: shorter than log2 of the number of sets
        (Field(torch.tensor([[0, 1] * 8], dtype=torch.uint8), Bitmap(8)), math.log2(math.comb(16, 8))),
    ],
)
def test_entropies_by_hand(field: Field, wanted: float) -> None:
    assert entropy_of(field) == pytest.approx(wanted)


def test_a_row_beside_the_bound() -> None:
    row = Row(bits=2.0, entropy=1.5, error=2**-2, deviation=0.0)
    assert (row.bound, row.wasted, row.wasted_at_best) == (2**-4, 1.0, 0.5)


def test_signs_of_gaussian_vectors() -> None:
    found = measure(Sign(), torch.randn(8, 4096, generator=torch.Generator().manual_seed(0)), (4096,))
    assert found.bits == 1 + 32 / 4096
    assert found.error == pytest.approx(1 - 2 / math.pi, abs=5 * found.deviation)


TIMES = ("time/symmetric_10/0ms", "time/cell_20/0ms")


class Given:
    """Records of the roles alone."""

    def __init__(self, *runs: Run) -> None:
        self.records = Records(runs, ROLES.options, ROLES.metrics)

    def __getitem__(self, experiment: Experiment) -> Records:
        return self.records if experiment is ROLES else Records()


def run(method: str, perplexities: Sequence[float], seconds: float | None, seed: int = 0) -> Run:
    """A run that evaluates every second round; a round takes so long, and twice that in the cell."""
    about = dict.fromkeys((*ABOUT, RATE), "1") | {"label": label(method), "seed": str(seed), "commit": "a"}
    lines: list[Mapping[str, float]] = []
    for number, value in enumerate(perplexities):
        line = {"round": 2.0 * number, "test/perplexity": value, "bits/uplink": number, "bits/total": 2.0 * number}
        times = {} if seconds is None else {TIMES[0]: 2 * seconds * number, TIMES[1]: 4 * seconds * number}
        lines.append(line | times)
    return Run(about, lines)


def rows(*runs: Run) -> list[str]:
    page = fine_tuning.page(Given(*runs))
    _, found, section = page.partition("### Seconds on two networks")
    return [line for line in section.partition("##")[0].splitlines() if line.startswith("|")] if found else []


def test_seconds_a_round_and_to_half_of_fedits_gain() -> None:
    """FedIT's gain is 2 of 6: the target is 5. Runs without times, and those that never get there, have empty cells."""
    fedit = run("fedit", [6, 5.5, 4.5, 4], 3.0)
    late = [run("topk", [6, 5.5, 5.2, 5], 1.0), run("topk", [6, 5, 5, 5], 2.0, seed=1)]
    never = [run("ffa_lora", [6, 5.5, 5.5, 5], 1.0), run("ffa_lora", [6, 5.5, 5.5, 5.1], 1.0, seed=1)]
    head, _, *found = rows(fedit, *late, *never, run("rolora", [6, 4], None))
    assert "round of 5 | 10 : 10 Mbit/s, a round | to 5 | cell of 20 Mbit/s up, a round | to 5" in head
    assert f"| {label('fedit')} | 4 | 3 | 12 | 6 | 24 |" in found
    assert any(row.startswith(f"| {label('topk')} | 4.0 ± 2.8 | 1.50 ± 0.71 | 5.0 ± 1.4 | 3.0 ±") for row in found)
    assert f"| {label('ffa_lora')} |  | 1 |  | 2 |  |" in found
    assert f"| {label('rolora')} | 2 |  |  |  |  |" in found


def test_records_without_times_have_no_such_table() -> None:
    assert rows(run("fedit", [6, 5], None)) == []


RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"


def test_every_method_with_a_choice_is_run_without_a_limit_of_bits() -> None:
    found = commands(SEARCH, COMMITTED[SEARCH])
    chosen = {word for command in found for word in command.split() if "method@_global_" in word}
    assert len(found) == 3 * len(chosen) > 60
    assert all("max_bits=null" in command and "record_traffic=true" in command for command in found)
    (dense,) = (command for command in found if command.endswith("seed=0") and "_global_=fedavg " in command)
    assert "algorithm.weights=uniform client.lr=0.1 client.steps=60" in dense
    assert commands(SEARCH, replace(COMMITTED[SEARCH], runs=())) == []
    timed = COMMITTED[RUNS]
    without = replace(timed, runs=[run for run in timed if not run.about["label"].startswith("EDEN")])
    assert "EDEN" not in not_run(timed, COMMITTED[SEARCH])
    assert "EDEN" in not_run(without, COMMITTED[SEARCH])


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
    lines = [{"round": at, "test/accuracy": value} for at, value in ((0.0, 0.1), (5.0, 0.85), (10.0, 0.8))]
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
        assert len(dots) == 2 * len(axes.get_yticks()) == 2 * 21
        assert {dot.get_markerfacecolor() == "white" for dot in dots[:21]} == {False}
        assert {dot.get_markerfacecolor() for dot in dots[21:]} == {"white"}
        assert all(0.5 < dot.get_xdata()[0] < 1000 for dot in dots)
    assert page.axes[0].lines[1].get_xdata()[0] == pytest.approx(20.1, abs=0.1)  # FedAvg's, as in the page's table
    draw(Folder(tmp_path), tmp_path)  # nothing was run
    assert len(saved) == 1
