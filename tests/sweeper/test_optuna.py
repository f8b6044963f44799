"""Searches with one end and with two, and commands that share a study: found, resumed, with trials that fail."""

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedcomp.objective.objectives import BestAccuracy, BitsToTarget
from fedcomp.objective.pareto import Ends, Pareto, front
from fedcomp.sweeper.contract import Choices, Interval, Result
from fedcomp.sweeper.optuna import Optuna
from fedcomp.sweeper.slots import slot
from tests.looped import looped
from tests.refused import one_line_error

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
    assert "none of 2 trials has a value: BestAccuracy finds no number in their records (a re" in report.message
    report = _study(tmp_path / "fail", n_trials=4).sweep(SPACE, lambda points: [Result(math.nan, "no")], BestAccuracy())
    assert report.message == "none of 4 trials has a value"


def test_a_point_whose_record_was_not_read_comes_first_when_the_objective_is_right(tmp_path: Path) -> None:
    asked = []

    def unread(points):
        asked.extend(dict(point) for point in points)
        return [Result(math.nan, "run 0 is finished, but objective Mine raised KeyError ('x')", unread=True)]

    report = _study(tmp_path, n_trials=3).sweep(SPACE, unread, BestAccuracy())
    assert report.failed
    assert report.message.startswith("run 0 is finished, but objective Mine raised KeyError ('x'); correct it: the")
    assert len(asked) == 1, "no run is made whose record would not be read"
    hill = Hill()
    report = _study(tmp_path, n_trials=3).sweep(SPACE, hill, BestAccuracy())
    assert (report.failed, len(hill.asked)) == (False, 3)
    assert hill.asked[0] == asked[0]


class Plain:
    """An objective of one's own, no dataclass, with an option."""

    direction = "maximize"

    def __init__(self, of: str) -> None:
        self.of = of

    def show(self, value: float) -> str:
        return f"{value:.2f}"


def test_an_objective_of_ones_own_is_the_same_in_the_next_process(tmp_path: Path, monkeypatch) -> None:
    for trials in (1, 2):
        report = _study(tmp_path, n_trials=trials).sweep(SPACE, Hill(), Plain("a"))  # type: ignore[arg-type]
    assert report.message.startswith("best of 2 trials: ")
    with pytest.raises(ValueError, match="was begun with objective <.*Plain object> with {'of': 'a'}, and this comm"):
        _study(tmp_path, n_trials=3).sweep(SPACE, Hill(), Plain("b"))  # type: ignore[arg-type]
    monkeypatch.setattr(Plain, "direction", "minimize")
    with pytest.raises(ValueError, match="was begun to maximize, and its objective now has direction='minimize': give"):
        _study(tmp_path, n_trials=3).sweep(SPACE, Hill(), Plain("a"))  # type: ignore[arg-type]


def test_an_objective_that_a_search_cannot_take_is_named(tmp_path: Path) -> None:
    own = Plain("a")
    own.direction = "up"
    with one_line_error("objective Plain has direction='up', but must maximize or minimize"):
        _study(tmp_path).sweep(SPACE, Hill(), own)  # type: ignore[arg-type]
    for objective, lacks in ((len, "direction"), (type("Mute", (), {"direction": "minimize"})(), "show")):
        with one_line_error(f"has no attribute '{lacks}': an objective of your own has direction = 'maximize' or"):
            _study(tmp_path).sweep(SPACE, Hill(), objective)


@looped(
    "interval, words",
    [
        ("interval(1,0.01)", r"client.lr=interval\(1,0.01\): the lower bound stands first: give interval\(0.01,1\)"),
        ("tag(log,interval(0,1))", r"the lower bound is 0, but must be above 0 for a search in its logarithm"),
        ("interval(0,inf)", r"client.lr=interval\(0,inf\): the bounds of an interval must be finite numbers"),
        ("interval(nan,1)", r"the bounds of an interval must be finite numbers"),
    ],
)
def test_the_bounds_of_an_interval_are_bounds(fedcomp, capsys, interval: str, words: str) -> None:
    assert fedcomp("sweeper=optuna", f"client.lr={interval}") == 2
    (shown,) = capsys.readouterr().err.splitlines()
    assert re.search(words, shown)


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
    _study(tmp_path, n_trials=1).sweep(SPACE, hill, BestAccuracy())


ANOTHER = {"compressor": Choices(("a",))}
OTHERS = {
    "objective Best.*Bits": (SPACE, BitsToTarget(), "rounds=5"),
    "space .*'compressor': .* this command has {'compressor'": (ANOTHER, BestAccuracy(), "rounds=5"),
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


BOTH = {"bits": Interval(1, 1000, log=True), "lr": Interval(0, 1)}


def trade(point) -> Result:
    """More bits, more accuracy; best at lr = 0.3."""
    bits = float(point["bits"])
    return Result(Ends(0.1 + 0.8 * math.log10(bits) / 3 - (float(point["lr"]) - 0.3) ** 2, bits))


@pytest.mark.parametrize("sampler", ["tpe", "random", "nsga2"])
def test_the_front_is_found_and_the_same_command_goes_on(tmp_path: Path, sampler: str) -> None:
    asked: list[dict] = []

    def evaluate(points):
        asked.extend(map(dict, points))
        return [trade(point) for point in points]

    options = {"sampler": sampler, "startup": 6}
    _study(tmp_path, n_trials=8, **options).sweep(BOTH, evaluate, Pareto())
    report = _study(tmp_path, n_trials=14, n_jobs=2, **options).sweep(BOTH, evaluate, Pareto())
    assert 12 <= len({str(point) for point in asked}) <= len(asked) <= 14  # nsga2 repeats some
    found = [trade(point).value for point in asked]
    assert re.match(r"\d+ of 14 on the front, ", report.message)
    ends = [Pareto().show(found[place]) for place in (front(found)[0], front(found)[-1])]
    assert " to ".join(ends) in report.message
    assert re.search(r"hypervolume [\d.]+ \(accuracy × decades of total bits", report.message)
    with pytest.raises(ValueError, match=r"begun with objective Pareto\(way='total'.* this command has Best"):
        _study(tmp_path).sweep(BOTH, evaluate, BestAccuracy())


def test_a_run_without_both_ends_has_no_value(tmp_path: Path) -> None:
    report = _study(tmp_path).sweep(BOTH, lambda points: [Result(Ends(math.nan, math.nan))], Pareto())
    assert report.failed
    assert report.message.startswith("none of 2 trials has a value: Pareto finds no number in their records")


def test_two_commands_share_a_study(tmp_path: Path) -> None:
    """The second comes while the first runs its second trial; together they run as many as wanted, all different."""
    asked: list[dict] = []

    def other(points):
        asked.extend(map(dict, points))
        return [trade(point) for point in points]

    def one(points):
        asked.extend(map(dict, points))
        if len(asked) == 2:
            _study(tmp_path, n_trials=5, shared=True).sweep(BOTH, other, Pareto())
            assert len(asked) == 5, "the trial that the first command runs counts"
        return [trade(point) for point in points]

    report = _study(tmp_path, n_trials=5, shared=True).sweep(BOTH, one, Pareto())
    assert "of 5 on the front" in report.message
    assert len({str(point) for point in asked}) == 5


def test_a_trial_of_a_command_that_is_gone_is_run_again(tmp_path: Path) -> None:
    stopped: list[dict] = []

    def stop(points):
        stopped.extend(map(dict, points))
        raise KeyboardInterrupt

    first: list[dict] = []

    def evaluate(points):
        if not first:
            first.extend(map(dict, points))
            with pytest.raises(KeyboardInterrupt):
                _study(tmp_path, n_trials=3, shared=True).sweep(BOTH, stop, Pareto())
        else:
            first.extend(map(dict, points))
        return [trade(point) for point in points]

    _study(tmp_path, n_trials=3, shared=True).sweep(BOTH, evaluate, Pareto())
    assert first[1] == stopped[0]
    assert len(first) == 3


HOLD = """
import sys, time
from pathlib import Path
from fedcomp.sweeper.slots import slot
with slot(Path(sys.argv[1]), "hill", True) as own:
    print(own.number, flush=True)
    time.sleep(60)
"""


def test_seats_end_with_their_process(tmp_path: Path) -> None:
    with (
        slot(tmp_path, "hill", shared=True) as own,
        subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder,
    ):
        assert holder.stdout is not None
        assert (own.number, int(holder.stdout.readline())) == (0, 1)
        assert own.taken(1)
        holder.kill()
        holder.wait()
        assert not own.taken(1)
        assert not own.taken(0)
        assert not own.taken(2)


def test_two_writers_of_a_study_that_do_not_share_it(tmp_path: Path) -> None:
    study = _study(tmp_path, n_trials=1)
    with slot(tmp_path, "hill", shared=False):
        with pytest.raises(ValueError, match=r"study hill in .*: another command works on it; wait .*shared=true"):
            study.sweep(BOTH, lambda points: [trade(point) for point in points], Pareto())
        with pytest.raises(ValueError, match="the other command has no sweeper.shared=true"):
            slot(tmp_path, "b", True).__enter__()
    with slot(tmp_path, "hill", shared=True), pytest.raises(ValueError, match="another command works on it"):
        study.sweep(BOTH, lambda points: [trade(point) for point in points], Pareto())
