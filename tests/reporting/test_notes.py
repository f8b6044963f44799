"""What stands beside the table: nothing is dropped in silence."""

import math
from pathlib import Path

from fedcomp.records.reader import read_runs
from fedcomp.reporting import notes
from fedcomp.reporting.group import group
from fedcomp.reporting.metrics import qualities
from tests.records.synthetic_runs import MakeRun


def test_values_that_are_no_numbers_are_named_with_their_round(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("sign", 0, [0.1, 0.5])
    folder = make_run("topk", 0, [0.1, 0.5, math.nan, math.nan], extra={"estimate/excess": math.inf})
    assert notes.not_finite(group(read_runs([tmp_path]))) == [
        f"{folder}: estimate/excess is inf from round 0, test/accuracy is nan from round 20, "
        "test/loss is nan from round 20; in the table, its means are not finite either"
    ]


def test_gaps(make_run: MakeRun, tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        make_run("sign", seed, [0.1, 0.5, 0.6])
    make_run("topk", 1, [0.1, 0.5], config={"rounds": 10})
    uneven = make_run("randk", 0, [0.1, 0.5, 0.6])
    for seed in (1, 2):
        make_run("randk", seed, [0.1, 0.5, 0.6])
    lines = (uneven / "metrics.jsonl").read_text().splitlines(keepends=True)
    (uneven / "metrics.jsonl").write_text(lines[0] + lines[2])
    groups = group(read_runs([tmp_path]))
    said = notes.gaps(groups, qualities(run for one in groups for run in one.runs))
    assert said == [
        "topk has no finished run of seed 0, 2; others have",
        "runs of different lengths are compared: 10 rounds: topk; 20 rounds: randk, sign",
        "randk: its seeds were evaluated at different rounds; curves show the 2 shared",
    ]


def test_a_run_without_any_quality_is_named(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("sign", 0, [0.1, 0.5])
    make_run("topk", 0, [], lines=[{"train/loss": 1.0}])
    groups = group(read_runs([tmp_path]))
    assert notes.gaps(groups, qualities(run for one in groups for run in one.runs)) == [
        "runs of different lengths are compared: 0 rounds: topk; 10 rounds: sign",
        "no quality was recorded by topk",
    ]
