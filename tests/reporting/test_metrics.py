"""Which of a run's values is its best, which reach a target, and what is said beside the table."""

import math
from pathlib import Path

from fedcomp.display.metric import metric
from fedcomp.records.reader import RecordedRun, read_runs
from fedcomp.reporting import notes
from fedcomp.reporting.group import group
from fedcomp.reporting.metrics import qualities, recorded
from tests.looped import looped
from tests.records.synthetic_runs import MakeRun


def best(key: str, values: list[float]) -> float | None:
    """Of a record that has them, and lines without."""
    return metric(key).best([{"round": 0}, *({key: value} for value in values)])


def test_the_best_is_finite_where_any_is_and_else_the_first() -> None:
    values = [math.nan, 0.3, math.inf, 0.7, -math.inf]
    assert (best("test/accuracy", values), best("test/loss", values)) == (0.7, 0.3)
    assert best("test/loss", [math.inf, math.nan]) == math.inf
    assert math.isnan(best("test/accuracy", [math.nan, math.inf]))
    assert best("test/loss", []) is None


@looped(
    "key, value, title, shown, higher",
    [
        ("test/accuracy", 0.5, "test accuracy (%)", "50.00", True),
        ("per_client/accuracy_worst_decile", 0.4567, "per client accuracy worst decile (%)", "45.67", True),
        ("per_client/accuracy_std", 0.1, "per client accuracy std (%)", "10.00", False),
        ("test/miou", 0.5, "test mean IoU", "0.500", True),
        ("test/iou/disc", 0.5, "test IoU disc", "0.500", True),
        ("variance/test/miou", 0.5, "variance of test mean IoU", "0.500", False),
        ("mse", 0.03125, "mse", "0.0312", False),
    ],
)
def test_how_a_metric_reads(key: str, value: float, title: str, shown: str, higher: bool) -> None:
    one = metric(key)
    assert (one.title, one.show(value), one.higher_is_better) == (title, shown, higher)
    assert best(key, [0.2, 0.5, 0.4]) == (0.5 if higher else 0.2)


def test_segmentation_is_judged_by_the_mean_iou_first_and_not_by_single_classes() -> None:
    line = {"round": 1, "test/accuracy": 0.8, "test/iou/disc": 0.3, "test/loss": 0.5, "test/miou": 0.4}
    run = RecordedRun(Path("x"), {"figures": "none"}, 0, "finished", lines=[line])  # no list of figures
    assert [one.key for one in qualities([run])] == ["test/miou", "test/accuracy", "test/loss"]
    assert recorded([run]) == ["test/miou", "test/accuracy", "test/loss", "test/iou/disc"]


def test_errors_of_estimates_and_metrics_without_a_test() -> None:
    mean, bare = (
        RecordedRun(Path(name), {}, 0, "finished", lines=[line])
        for name, line in (("mean", {"mse": 2.0, "test/error": 1.0, "x": 0.0}), ("bare", {"cost": 1.0, "mse": 3.0}))
    )
    assert [one.key for one in qualities([mean])] == ["mse", "test/error"]
    assert [one.key for one in qualities([mean, bare])] == ["mse", "test/error", "cost"]
    assert recorded([mean]) == ["mse", "test/error", "x"]
    model = RecordedRun(Path("model"), {}, 0, "finished", lines=[{"mse": 2.0, "test/loss": 1.0}])
    assert recorded([model]) == ["test/loss", "mse"]


def test_a_target_is_reached_at_the_target() -> None:
    accuracy, loss = metric("test/accuracy"), metric("test/loss")
    assert [accuracy.reaches(value, 0.9) for value in (0.89, 0.9, 0.91)] == [False, True, True]
    assert [loss.reaches(value, 0.9) for value in (0.89, 0.9, 0.91)] == [True, True, False]
    assert not accuracy.reaches(math.nan, 0.9)


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
