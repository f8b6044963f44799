"""Composes a config by Hydra, whose errors pass through; a Hydra application that calls it keeps its own state."""

import json
import threading
from collections.abc import Sequence
from pathlib import Path

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import DictConfig

from fedcomp.config import schema
from fedcomp.core.folders import CONF

COMPOSING = threading.RLock()
"""Hydra keeps its state in one place for the whole process: threads compose one after another."""


def load(words: Sequence[str], folders: Sequence[Path] = (), grid: bool = False) -> DictConfig:
    """The config of these overrides, and Hydra's own below the key `hydra`, such as which choices were made.

    Args:
        folders: of configs beside fedcomp's. grid: whether the words are those that all runs of a grid share.
    Raises:
        HydraException, OmegaConfBaseException, YAMLError: there is no such config.
    """
    schema.register()
    named = json.dumps([f"file://{folder.resolve()}" for folder in folders], ensure_ascii=False)
    search = [f"hydra.searchpath={named}"] if folders else []
    mode = RunMode.MULTIRUN if grid else RunMode.RUN
    with COMPOSING:
        before = GlobalHydra.instance().hydra
        GlobalHydra.instance().clear()
        try:
            with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
                loader = GlobalHydra.instance().config_loader()
                return loader.load_configuration("train", [*search, *words], mode, validate_sweep_overrides=not grid)
        finally:
            GlobalHydra.instance().hydra = before


def folders_of(config: DictConfig) -> list[Path]:
    """The folders that the files of a composed config may lie in."""
    return [Path(one.path) for one in config.hydra.runtime.config_sources if one.schema == "file"]
