"""A config of the defaults with some overrides, outside of a command line of `fedcomp` itself."""

from __future__ import annotations

from collections.abc import Sequence

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig

from fedcomp.config import schema
from fedcomp.config.defaults import CONF


def composed(overrides: Sequence[str], group: str) -> DictConfig:
    """The config. Raises ValueError: an override is wrong; the message lists the choices of `group`."""
    schema.register()
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            return compose("train", overrides=list(overrides))
    except HydraException as error:
        first = str(error).split("\n")[0]
        known = ", ".join(sorted(path.stem for path in (CONF / group).glob("*.yaml")))
        raise ValueError(f"{' '.join(overrides)}: {first} ({group}s: {known})") from error
