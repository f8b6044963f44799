"""Options of a wrong type are refused in one line that names them."""

from dataclasses import replace

import pytest

from fedcomp.algorithm.masks.frozen_weights import FrozenWeights
from fedcomp.launcher.joblib import Joblib
from fedcomp.status.runs import run_states
from tests.looped import looped
from tests.parts import Adam, ServerAdam, ServerSgd, Sgd

PARTS = [
    *((Adam(lr=0.1), "client", name) for name in ("beta1", "beta2", "eps", "weight_decay", "lr_final")),
    *((Sgd(lr=0.1), "client", name) for name in ("momentum", "weight_decay", "lr_final")),
    *((ServerAdam(), "server", name) for name in ("lr", "beta1", "beta2", "eps")),
    *((ServerSgd(), "server", name) for name in ("lr", "momentum")),
    *((Joblib(), "launcher", name) for name in ("n_jobs", "runs_per_gpu")),
]


@looped("part, group, name", PARTS)
@looped("value", ["abc", None, -2.5])
def test_an_option_that_is_no_number_is_named(part, group, name, value):
    with pytest.raises(ValueError, match=f"^{group}.{name}={value} must be"):
        replace(part, **{name: value})


def test_adams_eps_is_above_0_and_true_is_no_number():
    with pytest.raises(ValueError, match="client.eps=0"):
        Adam(lr=0.1, eps=0)
    with pytest.raises(ValueError, match="client.weight_decay=True"):
        Sgd(lr=0.1, weight_decay=True)


def test_first_probabilities_that_are_none():
    with pytest.raises(ValueError, match="algorithm.theta0=None must be"):
        FrozenWeights(theta0=None)  # type: ignore[arg-type]


def test_the_status_of_a_folder_with_broken_files(tmp_path):
    for name in ("one", "two"):
        folder = tmp_path / name / "seed=0"
        folder.mkdir(parents=True)
        (folder / "status.json").write_text('{"state": "finished", "round": 1}')
    (tmp_path / "one" / "seed=0" / "config.yaml").write_text("- a\n")
    (tmp_path / "two" / "seed=0" / "metrics.jsonl").mkdir()
    errors = [run.error for run in run_states(tmp_path).runs]
    assert "must be a mapping" in errors[0]
    assert "cannot read" in errors[1]
