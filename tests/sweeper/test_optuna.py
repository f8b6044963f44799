"""A search over a function that takes no time: it finds the top, survives failures, and resumes from its file."""

import math
from pathlib import Path

import pytest

from fedcomp.objective.objectives import BestAccuracy, BitsToTarget
from fedcomp.sweeper.contract import Choices, Interval, Result
from fedcomp.sweeper.optuna import Optuna

pytest.importorskip("optuna", reason="no Optuna here: pip install 'fedcomp[grids]'")
SPACE = {"client.lr": Interval(0.001, 10, log=True), "compressor": Choices(("topk", "sign"))}


class Hill:
    """Highest at client.lr = 0.1 with sign. Notes what it was asked."""

    def __init__(self) -> None:
        self.batches: list[list[dict[str, str]]] = []

    def __call__(self, points):
        self.batches.append([dict(point) for point in points])
        return [self._one(point) for point in points]

    def _one(self, point) -> Result:
        rate = float(point["client.lr"])
        if rate > 3:
            return Result(math.nan, "diverged")
        return Result(1 - (math.log10(rate) + 1) ** 2 / 9 - (0.2 if point["compressor"] == "topk" else 0))

    @property
    def asked(self) -> list[dict[str, str]]:
        return [point for batch in self.batches for point in batch]


def _study(folder: Path, **options) -> Optuna:
    return Optuna(folder=str(folder), study="hill", **options)


def test_it_finds_the_top_though_trials_fail(tmp_path: Path) -> None:
    hill = Hill()
    report = _study(tmp_path, n_trials=40, n_jobs=4).sweep(SPACE, hill, BestAccuracy())
    assert [len(batch) for batch in hill.batches] == [4] * 10
    assert any(float(point["client.lr"]) > 3 for point in hill.asked)
    assert not report.failed
    assert "compressor=sign" in report.message
    best = float(report.message.split("client.lr=")[1].split()[0])
    assert 0.03 < best < 0.3, report.message


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_the_same_command_goes_on(tmp_path: Path, sampler: str) -> None:
    first, second, third = Hill(), Hill(), Hill()
    _study(tmp_path, n_trials=4, sampler=sampler).sweep(SPACE, first, BestAccuracy())
    _study(tmp_path, n_trials=6, sampler=sampler).sweep(SPACE, second, BestAccuracy())
    report = _study(tmp_path, n_trials=6, sampler=sampler).sweep(SPACE, third, BestAccuracy())
    assert [len(hill.asked) for hill in (first, second, third)] == [4, 2, 0]
    assert "best of" in report.message
    assert not [point for point in second.asked if point in first.asked], "a resumed sampler repeats itself"


def test_trials_under_way_when_it_was_stopped_come_first(tmp_path: Path) -> None:
    stopped = []

    def stop(points):
        stopped.extend(dict(point) for point in points)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _study(tmp_path, n_trials=3, n_jobs=2).sweep(SPACE, stop, BestAccuracy())
    hill = Hill()
    _study(tmp_path, n_trials=3, n_jobs=2).sweep(SPACE, hill, BestAccuracy())
    assert hill.batches[0] == stopped
    assert len(hill.asked) == 3


def test_what_another_command_runs_counts(tmp_path: Path) -> None:
    others = Hill()

    def run_beside_another(points):
        if not others.batches:
            _study(tmp_path, n_trials=3, n_jobs=3, shared=True).sweep(SPACE, others, BestAccuracy())
        return Hill()(points)

    _study(tmp_path, n_trials=3, n_jobs=2, shared=True).sweep(SPACE, run_beside_another, BestAccuracy())
    assert len(others.asked) == 1  # of three trials, two are under way


def test_none_has_a_value(tmp_path: Path) -> None:
    report = _study(tmp_path, n_trials=20).sweep(SPACE, lambda points: [Result(math.nan)], BestAccuracy())
    assert report.failed
    assert report.message.startswith(
        "none of 2 trials has a value: BestAccuracy finds no number in their records (a re"
    )
    report = _study(tmp_path / "fail", n_trials=4).sweep(SPACE, lambda points: [Result(math.nan, "no")], BestAccuracy())
    assert report.message == "none of 4 trials has a value"


def test_bits_are_minimised_and_never_is_worst(tmp_path: Path) -> None:
    values = iter([math.inf, 30.0, 20.0])
    report = _study(tmp_path, n_trials=3).sweep(SPACE, lambda points: [Result(next(values))], BitsToTarget())
    assert "20 bit to 90.00 %" in report.message


def test_what_cannot_be_searched_is_refused(tmp_path: Path) -> None:
    hill = Hill()
    with pytest.raises(ValueError, match="nothing to search"):
        _study(tmp_path).sweep({}, hill, BestAccuracy())
    with pytest.raises(ValueError, match="luckiest seed"):
        _study(tmp_path).sweep({"seed": Choices(("0", "1"))}, hill, BestAccuracy())
    with pytest.raises(ValueError, match="sweeper.sampler=luck must be one of tpe, random"):
        _study(tmp_path, sampler="luck")
    _study(tmp_path, n_trials=1).sweep(SPACE, hill, BestAccuracy())


OTHERS = {
    "objective Best.*Bits": (SPACE, BitsToTarget(), "rounds=5"),
    "space .*'compressor': .* this command has {'compressor'": (
        {"compressor": Choices(("a",))},
        BestAccuracy(),
        "rounds=5",
    ),
    "settings rounds=5, and this command has rounds=6": (SPACE, BestAccuracy(), "rounds=6"),
    "settings rounds=5, and this command has them left": (SPACE, BestAccuracy(), ""),
}


@pytest.mark.parametrize("words", OTHERS)
def test_a_study_answers_for_its_own_search_alone(tmp_path: Path, words: str) -> None:
    """Also where it is full, so that no trial is asked for."""
    hill, (space, objective, fixed) = Hill(), OTHERS[words]
    _study(tmp_path, n_trials=1).sweep(SPACE, hill, BestAccuracy(), "rounds=5")
    with pytest.raises(ValueError, match=f"{words}.* give sweeper.study=<another name>"):
        _study(tmp_path, n_trials=1).sweep(space, hill, objective, fixed)
    one, other = BitsToTarget(0.1), BitsToTarget(0.11)
    _study(tmp_path / "bits", n_trials=1).sweep(SPACE, hill, one)
    with pytest.raises(ValueError, match="target=0.1,.*target=0.11,"):
        _study(tmp_path / "bits", n_trials=1).sweep(SPACE, hill, other)
