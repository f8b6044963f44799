"""Options of a swept part belong to each choice of the sweep."""

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from fedcomp.records.grid import MANIFEST

GRID = ("-m", "rounds=1", "num_clients=2", "pictures=false")


@pytest.mark.parametrize(
    ("words", "part", "option", "values"),
    [
        (("compressor=topk,randk", "compressor.fraction=0.05"), "compressor", "fraction", {0.05}),
        pytest.param(
            *(("compressor.fraction=0.1,0.2", "compressor=topk,randk"), "compressor", "fraction", {0.1, 0.2}),
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            *(("compressor@downlink=topk,randk", "downlink.fraction=0.5"), "downlink", "fraction", {0.5}),
            marks=pytest.mark.thorough,
        ),
        (("network=lte,5g", "network.seconds_per_gradient=1e-3"), "network", "seconds_per_gradient", {1e-3}),
        (("algorithm=dasha,marina", "compressor.fraction=0.5"), "compressor", "fraction", {0.5}),
    ],
)
def test_an_option_that_every_choice_has_is_every_runs(fedcomp, tmp_path: Path, words, part, option, values) -> None:
    assert fedcomp(*GRID, *words) == 0
    configs = [OmegaConf.load(path) for path in tmp_path.rglob("config.yaml")]
    assert len(configs) == 2 * len(values)
    assert {config[part][option] for config in configs} == values
    (manifest,) = tmp_path.rglob(MANIFEST)
    own = [json.loads(line)["overrides"] for line in manifest.read_text().splitlines()]
    swept = [word for word in words if "," in word]
    assert {len(one) for one in own} == {len(swept)}, "of what all runs share a run's own words have nothing"


def test_a_choice_that_lacks_the_option_is_named_before_the_first_run(fedcomp, capsys, tmp_path: Path) -> None:
    assert fedcomp(*GRID, "compressor=topk,sign", "compressor.fraction=0.05") == 2
    said = capsys.readouterr().err
    assert "run 1 (compressor=sign): there is no option 'compressor.fraction': compressor is sign, and fraction" in said
    assert not list(tmp_path.rglob("config.yaml"))
