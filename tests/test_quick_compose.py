"""Configs that tests compose quickly are those that Hydra composes."""

from pathlib import Path
from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import OmegaConf

from fedcomp.config import schema
from fedcomp.core.folders import CONF
from tests import quick_compose

CONFIGS = (
    (),
    ("rounds=3", "client.lr=0.5", "model.hidden=[8,4]", "+vars.a=2", "label=${vars.a}"),
    ("compressor=topk", "compressor@downlink=sign", "compressor.fraction=0.5", "hydra.verbose=true"),
    ("compressor=topk", "compressor.feedback=error", "~compressor.fraction"),
    ("experiment=fedscalar/digits", "seed=7", "client.steps=2"),
    ("experiment=bicompfl/short", "participation=uniform"),
    ("server=adam", "network=asymmetric_10", "launcher=joblib"),
)


def _load(words: tuple[str, ...], of_grid: bool = False) -> Any:
    """All that Hydra makes of these words, its own node included."""
    schema.register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        if of_grid:
            return loader.load_sweep_config(loader.load_configuration("train", [], RunMode.MULTIRUN), list(words))
        return loader.load_configuration("train", list(words), RunMode.RUN)


def _nodes(node: Any, path: str = "") -> list[tuple[Any, ...]]:
    """Every node of a config in its order: where it is, what it holds, its types and flags."""
    meta, content = node._metadata, node.__dict__["_content"] if OmegaConf.is_config(node) else node._value()
    children = dict(enumerate(content)) if isinstance(content, list) else content if isinstance(content, dict) else {}
    own = (path, type(node), None if children else content, meta.ref_type, meta.object_type, meta.optional, meta.flags)
    return [own, *(each for key, child in children.items() for each in _nodes(child, f"{path}.{key}"))]


@pytest.mark.parametrize("of_grid", [False, True])
def test_a_quick_config_is_hydras_own(of_grid: bool) -> None:
    for words in CONFIGS[2:4] if of_grid else CONFIGS:
        quick = [_nodes(_load(words, of_grid)), _nodes(_load(words, of_grid))]
        with pytest.MonkeyPatch.context() as patch:
            quick_compose.compose_as_always(patch)
            wanted = _nodes(_load(words, of_grid))
        assert len(wanted) > 150
        assert quick == [wanted, wanted], words


def test_a_folder_of_ones_own_is_read_as_it_is_now(tmp_path: Path) -> None:
    own = tmp_path / "server" / "own.yaml"
    own.parent.mkdir()
    words = (f"hydra.searchpath=[file://{tmp_path}]", "server=own")
    for text in ("_target_: a", "defaults: [sgd, _self_]"):
        own.write_text(text)
        quick = _nodes(_load(words))
        with pytest.MonkeyPatch.context() as patch:
            quick_compose.compose_as_always(patch)
            assert quick == _nodes(_load(words))
