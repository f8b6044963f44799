"""The options of a composed config, each with its value and with the comment of the YAML that sets it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedcomp.config.comments import Comments, read
from fedcomp.core.folders import CONF

NO_COMMENT = "(no comment in its YAML)"


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        name: within its part, with dots. value: as typed on the command line. about: its comment.
    """

    name: str
    value: str
    about: str


@dataclass(frozen=True)
class ConfigPart:
    """A part of a run, chosen by name.

    Attributes:
        group: such as `compressor@downlink`. choice: name of its YAML. key: of its options, such as `downlink`.
        about: the first comment of the YAML.
    """

    group: str
    choice: str
    key: str
    about: str
    options: tuple[Option, ...]


def explain(config: DictConfig, folders: Sequence[Path]) -> tuple[list[Option], list[ConfigPart]]:
    """Options of the run itself, and its parts in the order of `conf/train.yaml`, of a config composed with Hydra."""
    made = {group: choice for group, choice in config.hydra.runtime.choices.items() if choice}
    chosen = {group: _file(group, choice, folders) for group, choice in made.items() if not group.startswith("hydra/")}
    listed = read(CONF / "train.yaml")
    comments = dict(listed.options)
    for group, file in chosen.items():
        if not group.startswith("experiment"):
            comments |= {f"{_key(group)}.{name}": comment for name, comment in file.options.items()}
    for group, file in chosen.items():
        if group.startswith("experiment"):
            comments = file.options | comments
    parts = []
    for group in [*listed.groups, *sorted(chosen.keys() - listed.groups.keys())]:
        if group in chosen:
            node = config.get(_key(group))
            options = _options(node, f"{_key(group)}.", comments) if isinstance(node, DictConfig) else ()
            parts.append(ConfigPart(group, made[group], _key(group), chosen[group].about or NO_COMMENT, options))
    keys = {"hydra", *(part.key for part in parts)}
    run = [str(key) for key in config if key not in keys]
    return [Option(name, _typed(config, name), comments.get(name, NO_COMMENT)) for name in run], parts


def _key(group: str) -> str:
    """The config key of a group's options: `downlink` of `compressor@downlink`."""
    return group.rpartition("@")[2]


def _file(group: str, choice: str, folders: Sequence[Path]) -> Comments:
    """The comments of a choice's YAML, in the first of the folders that has it."""
    paths = (folder / group.partition("@")[0] / f"{choice}.yaml" for folder in folders)
    return next((read(path) for path in paths if path.is_file()), Comments("", {}, {}))


def _options(node: DictConfig, prefix: str, comments: Mapping[str, str], path: str = "") -> tuple[Option, ...]:
    """The options of a part, and of the parts inside it."""
    options: list[Option] = []
    for name in (str(key) for key in node if not str(key).startswith("_")):
        full = f"{path}{name}"
        inner = None if OmegaConf.is_missing(node, name) or OmegaConf.is_interpolation(node, name) else node[name]
        if isinstance(inner, DictConfig) and any(one.startswith(f"{prefix}{full}.") for one in comments):
            options += _options(inner, prefix, comments, f"{full}.")
        else:
            options.append(Option(full, _typed(node, name), comments.get(prefix + full, NO_COMMENT)))
    return tuple(options)


def _typed(node: DictConfig, key: str) -> str:
    """A value as typed on the command line, with interpolations resolved if possible."""
    if OmegaConf.is_missing(node, key):
        return "???"
    try:
        plain: Any = OmegaConf.to_container(OmegaConf.create({key: node[key]}), resolve=True, enum_to_str=True)
    except OmegaConfBaseException:
        plain = OmegaConf.to_container(node, resolve=False, enum_to_str=True)
    text = yaml.safe_dump(plain[key], default_flow_style=True, width=10_000, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...").replace(", ", ",")
