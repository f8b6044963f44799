"""Configs from Python: the same as on the command line, and errors in one line."""

from pathlib import Path

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from fedcomp.config.compose import compose
from tests.looped import looped


def test_overrides_are_those_of_the_command_line() -> None:
    config = compose(["compressor=topk", "compressor.fraction=0.25", "rounds=7"])
    assert (config.compressor.fraction, config.rounds) == (0.25, 7)
    assert config.compressor._target_.endswith("topk.TopK")
    assert "hydra" not in config
    assert compose().rounds == 100
    assert compose("rounds=3").rounds == 3


def test_an_experiment_is_its_first_method() -> None:
    assert compose(["experiment=fedscalar/digits"]).name == "fedscalar-digits"


@looped("word, line", [("compressor=tpk", "compressor=tpk is unknown; did you mean"), ("seed=0,1", "several values")])
def test_wrong_overrides(word: str, line: str) -> None:
    with pytest.raises(ValueError, match=line) as error:
        compose([word])
    assert "\n" not in str(error.value)


def test_ones_own_configs(tmp_path: Path) -> None:
    folder = tmp_path / "compressor"
    folder.mkdir()
    target = "fedcomp.compressor.sparsifiers.topk.TopK"
    (folder / "half.yaml").write_text(f"# Half\n_target_: {target}\nfraction: 0.5\nfeedback: none\n")
    assert compose(["compressor=half"], tmp_path).compressor.fraction == 0.5
    with pytest.raises(ValueError, match="there is no folder .*nowhere"):
        compose([], tmp_path / "nowhere")


def test_a_hydra_application_keeps_its_state(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("a: 1\n")
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        before = GlobalHydra.instance().hydra
        compose(["rounds=2"])
        assert GlobalHydra.instance().hydra is before
    with pytest.raises(ValueError, match="unknown"):
        compose(["compressor=tpk"])
    assert GlobalHydra.instance().hydra is None
    assert OmegaConf.is_config(compose())
