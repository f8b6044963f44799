"""Searches with two ends, and several commands that share a study."""

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedcomp.objective.objectives import BestAccuracy
from fedcomp.objective.pareto import Ends, Pareto, front
from fedcomp.sweeper.contract import Interval, Result
from fedcomp.sweeper.optuna import Optuna
from fedcomp.sweeper.slots import slot

pytest.importorskip("optuna", reason="no Optuna here: pip install 'fedcomp[grids]'")
SPACE = {"bits": Interval(1, 1000, log=True), "lr": Interval(0, 1)}


def trade(point) -> Result:
    """More bits, more accuracy; best at lr = 0.3."""
    bits = float(point["bits"])
    return Result(Ends(0.1 + 0.8 * math.log10(bits) / 3 - (float(point["lr"]) - 0.3) ** 2, bits))


def _study(folder: Path, **options) -> Optuna:
    return Optuna(folder=str(folder), study="trade", **options)


@pytest.mark.parametrize("sampler", ["tpe", "random", "nsga2"])
def test_the_front_is_found_and_the_same_command_goes_on(tmp_path: Path, sampler: str) -> None:
    asked: list[dict] = []

    def evaluate(points):
        asked.extend(map(dict, points))
        return [trade(point) for point in points]

    options = {"sampler": sampler, "startup": 6}
    _study(tmp_path, n_trials=8, **options).sweep(SPACE, evaluate, Pareto())
    report = _study(tmp_path, n_trials=14, n_jobs=2, **options).sweep(SPACE, evaluate, Pareto())
    assert 12 <= len({str(point) for point in asked}) <= len(asked) <= 14  # nsga2 repeats some
    found = [trade(point).value for point in asked]
    assert re.match(r"\d+ of 14 on the front, ", report.message)
    ends = [Pareto().show(found[place]) for place in (front(found)[0], front(found)[-1])]
    assert " to ".join(ends) in report.message
    assert re.search(r"hypervolume [\d.]+ \(accuracy × decades of total bits", report.message)
    with pytest.raises(ValueError, match=r"begun with objective Pareto\(way='total'.* this command has Best"):
        _study(tmp_path).sweep(SPACE, evaluate, BestAccuracy())


def test_a_run_without_both_ends_has_no_value(tmp_path: Path) -> None:
    report = _study(tmp_path).sweep(SPACE, lambda points: [Result(Ends(math.nan, math.nan))], Pareto())
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
            _study(tmp_path, n_trials=5, shared=True).sweep(SPACE, other, Pareto())
            assert len(asked) == 5, "the trial that the first command runs counts"
        return [trade(point) for point in points]

    report = _study(tmp_path, n_trials=5, shared=True).sweep(SPACE, one, Pareto())
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
                _study(tmp_path, n_trials=3, shared=True).sweep(SPACE, stop, Pareto())
        else:
            first.extend(map(dict, points))
        return [trade(point) for point in points]

    _study(tmp_path, n_trials=3, shared=True).sweep(SPACE, evaluate, Pareto())
    assert first[1] == stopped[0]
    assert len(first) == 3


HOLD = """
import sys, time
from pathlib import Path
from fedcomp.sweeper.slots import slot
with slot(Path(sys.argv[1]), "trade", True) as own:
    print(own.number, flush=True)
    time.sleep(60)
"""


def test_seats_end_with_their_process(tmp_path: Path) -> None:
    with (
        slot(tmp_path, "trade", shared=True) as own,
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
    with slot(tmp_path, "trade", shared=False):
        with pytest.raises(ValueError, match=r"study trade in .*: another command works on it; wait .*shared=true"):
            study.sweep(SPACE, lambda points: [trade(point) for point in points], Pareto())
        with (
            pytest.raises(ValueError, match=r"the other command has no sweeper.shared=true"),
            slot(tmp_path, "b", True),
        ):
            pass
    with slot(tmp_path, "trade", shared=True), pytest.raises(ValueError, match="another command works on it"):
        study.sweep(SPACE, lambda points: [trade(point) for point in points], Pareto())
