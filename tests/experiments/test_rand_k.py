"""The experiments of Rand-k-Spatial and -Temporal: one command is a grid, and every method that they name composes."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from fedcomp.config.compose import compose
from fedcomp.records.metrics_file import read_lines
from fedcomp.records.status import read_status

CONF = Path(__file__).resolve().parents[2] / "conf"
EXPERIMENTS = sorted(path.stem for path in (CONF / "experiment" / "rand_k").glob("*.yaml"))
METHODS = sorted(path.stem for path in (CONF / "experiment" / "rand_k" / "method").glob("*.yaml"))
METHOD = "experiment/rand_k/method@_global_"


def _params(experiment: str) -> dict[str, str]:
    text = OmegaConf.load(CONF / "experiment" / "rand_k" / f"{experiment}.yaml")
    return OmegaConf.to_container(text.hydra.sweeper.params)  # type: ignore[return-value, union-attr]


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_methods_of_an_experiment_exist(experiment: str) -> None:
    named = _params(experiment)[METHOD].split(",")
    assert len(named) >= 4
    assert set(named) <= set(METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_composes(method: str) -> None:
    config = compose(["experiment=rand_k/mse", f"{METHOD}={method}", "compressor.fraction=0.2"])
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    assert plain["label"]
    assert plain["figures"][0]["x"] == "vectors/correlation"
    assert plain["compressor"]["fraction"] == 0.2


@pytest.mark.thorough
def test_one_command_is_the_whole_grid(fedcomp, tmp_path: Path) -> None:
    """Whatever the command line gives, too, is no longer swept."""
    given = (f"{METHOD}=randk", "compressor=topk", "compressor.fraction=0.1", "compressor.positions=index", "rounds=3")
    assert fedcomp("experiment=rand_k/mse", *given) == 0
    folders = [path.parent for path in (tmp_path / "rand_k_mse").rglob("status.json")]
    assert len(folders) == 11
    ratios = []
    for folder in folders:
        status = read_status(folder)
        assert status is not None
        assert status.state == "finished"
        assert not list(folder.glob("*.png"))
        first, last = read_lines(folder / "metrics.jsonl")
        assert (first["round"], last["round"]) == (0, 3)
        assert last["bits/uplink"] == 3 * 10 * 10 * (32 + 7)
        assert last["mse"] >= 0
        ratios.append(round(last["vectors/correlation"]))
    assert sorted(ratios) == list(range(-1, 10))
