"""All combinations, and no more."""

import pytest

from fedcomp.objective.objectives import BestAccuracy
from fedcomp.sweeper.contract import Choices, Grid, Interval, Result


def test_every_combination_once_in_one_batch() -> None:
    batches = []

    def evaluate(points):
        batches.append([dict(point) for point in points])
        return [Result(0.5, "bad" if point["seed"] == "1" else None) for point in points]

    space = {"compressor": Choices(("topk", "sign")), "seed": Choices(("0", "1"))}
    assert Grid().sweep(space, evaluate, BestAccuracy()).failed
    (points,) = batches
    found = [(point["compressor"], point["seed"]) for point in points]
    assert found == [("topk", "0"), ("topk", "1"), ("sign", "0"), ("sign", "1")]


def test_no_swept_key_is_one_run() -> None:
    assert not Grid().sweep({}, lambda points: [Result(1.0) for _ in points], BestAccuracy()).failed


def test_a_value_given_twice_is_one_run() -> None:
    """Two processes cannot write one folder."""
    asked: list[list[str]] = []

    def evaluate(points):
        asked.append([point["seed"] for point in points])
        return [Result(1.0) for _ in points]

    assert not Grid().sweep({"seed": Choices(("1", "0", "1"))}, evaluate, BestAccuracy()).failed
    assert asked == [["1", "0"]]


def test_an_interval_is_refused() -> None:
    with pytest.raises(ValueError, match=r"client.lr is an interval: give a list .* sweeper=optuna"):
        Grid().sweep({"client.lr": Interval(0.1, 1)}, lambda points: [], BestAccuracy())
