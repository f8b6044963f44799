"""The default choices of `conf/train.yaml`."""

from __future__ import annotations

import functools
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from fedcomp.core.folders import CONF, part_name


@functools.cache
def train_yaml() -> DictConfig:
    """The content of `conf/train.yaml`, not to be changed; reading it takes as long as reading twenty choices."""
    content = OmegaConf.load(CONF / "train.yaml")
    assert isinstance(content, DictConfig)
    return content


def default_choices() -> dict[str, str]:
    """{group, such as `compressor@downlink`: name of its default choice}."""
    listed = train_yaml().defaults
    assert isinstance(listed, ListConfig)
    entries = [entry.items() for entry in listed if isinstance(entry, DictConfig)]
    return {str(group): str(choice) for pairs in entries for group, choice in pairs if choice is not None}


def default_choice(key: str) -> tuple[str, dict[str, Any]]:
    """(name, options) of the default choice for a config key: `server`, or `downlink` for `compressor@downlink`."""
    for group, choice in default_choices().items():
        if group.rpartition("@")[2] == key:
            options = OmegaConf.to_container(OmegaConf.load(CONF / group.partition("@")[0] / f"{choice}.yaml"))
            assert isinstance(options, dict)
            return choice, {str(name): value for name, value in options.items()}
    raise KeyError(key)


def changes(key: str, given: Any) -> list[str]:
    """The overrides by which a node differs from its default: `compressor=topk`, `server.lr=0.5`; [] if it does not."""
    _, default = default_choice(key)
    plain = OmegaConf.to_container(given, resolve=True)
    assert isinstance(plain, dict)
    if plain.get("_target_") != default.get("_target_"):
        return [f"{key}={part_name(plain.get('_target_'))}"]
    names = sorted({str(name) for name in (*plain, *default)})
    return [f"{key}.{name}={plain.get(name)}" for name in names if plain.get(name) != default.get(name)]
