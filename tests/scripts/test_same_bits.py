"""The experiment on equal bits: its rates are those that the tuning chose, and no run goes far beyond its budget."""

from __future__ import annotations

import itertools
from pathlib import Path

import yaml

from scripts.reproduce.records import Folder
from scripts.reproduce.same_bits import BITS, GRIDS, METHODS, TUNING, completed, tuning_score

RECORDS = Folder(Path(__file__).resolve().parents[2] / "docs" / "results" / "records")


def _grids() -> dict[str, tuple[str, list[float]]]:
    """{method: (its option, the rates that are tried)}."""
    each = ((name, *rates.split("=")) for names, rates in GRIDS for name in names.split(","))
    return {name: (option, [float(rate) for rate in rates.split(",")]) for name, option, rates in each}


def _rate(method: dict, option: str) -> float:
    group, name = option.split(".")
    return float(method[group][name])


def test_every_method_is_tuned_over_five_rates_a_factor_of_three_apart() -> None:
    grids = _grids()
    files = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in METHODS.glob("*.yaml")}
    assert sorted(grids) == sorted(files)
    experiment = yaml.safe_load((METHODS.parent / "bits_mnist.yaml").read_text(encoding="utf-8"))
    chosen = experiment["hydra"]["sweeper"]["params"]["experiment/neighbours/method@_global_"].split(",")
    assert sorted(chosen) == sorted(files)
    for name, (option, rates) in grids.items():
        assert len(rates) == 5
        assert all(2.99 < later / rate < 3.4 for rate, later in itertools.pairwise(rates))
        assert _rate(files[name], option) in rates


def test_rates_are_the_best_of_the_tuning() -> None:
    tuning, runs = RECORDS[TUNING], RECORDS[BITS]
    for name, (option, rates) in _grids().items():
        method = yaml.safe_load((METHODS / f"{name}.yaml").read_text(encoding="utf-8"))
        tried = tuning.where(label=method["label"])
        scores = {float(rate): tuning_score(tried.where(**{option: rate})) for rate in tried.values(option)}
        for run in runs.where(label=method["label"], state="failed"):
            scores[float(run.about[option])] = None
        if sorted(scores) == rates:
            assert _rate(method, option) == max(scores, key=lambda rate: scores[rate] or -1.0), name
        for run in completed(runs).where(label=method["label"]):
            assert sorted(scores) == rates, f"{name} was run before it was tuned"
            assert float(run.about[option]) == _rate(method, option)


def test_runs_end_with_their_budget() -> None:
    for run in RECORDS[BITS].where(state="finished"):
        per_round = (run.last("bits/total") or 0.0) / run.rounds
        assert (run.last("bits/total") or 0.0) < 1.28e9 + 2 * per_round
        assert run.rounds == 160 or (run.last("bits/total") or 0.0) >= 1.28e9
