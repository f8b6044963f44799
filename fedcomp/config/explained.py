"""The options of a composed config, each with its value and with what the YAML that writes it says about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedcomp.config.comments import Comments, read
from fedcomp.config.defaults import CONF

UNSAID = "(no comment in its YAML)"


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        name: within its part, dots included. value: as it is typed on the command line. about: its explanation.
    """

    name: str
    value: str
    about: str


@dataclass(frozen=True)
class ConfigPart:
    """A part of a run, chosen by name.

    Attributes:
        group: `compressor@downlink`. choice: its YAML's name. key: `downlink`, of its options. about: the choice's
            first comment.
    """

    group: str
    choice: str
    key: str
    about: str
    options: tuple[Option, ...]


@dataclass(frozen=True)
class Sources:
    """Where a composed config comes from.

    Attributes:
        folders: with configs; of two files of one name the first counts.
        choices: {group: choice}.
        files: (config, such as `compressor/topk`; package, such as `downlink`) in the order of composition.
    """

    folders: Sequence[Path]
    choices: Mapping[str, str | None]
    files: Sequence[tuple[str, str]]

    def file(self, config: str) -> Path | None:
        """The YAML file of a config, `compressor/topk`; None: it has none."""
        paths = (folder / f"{config}.yaml" for folder in self.folders)
        return next((path for path in paths if path.is_file()), None)


def explained(config: DictConfig, sources: Sources) -> tuple[tuple[Option, ...], tuple[ConfigPart, ...]]:
    """The options of the run itself, and its parts in the order of `conf/train.yaml`."""
    said = _said(sources)
    parts = []
    groups = [group for group in read(CONF / "train.yaml").groups if "/" not in group]
    chosen = {group: choice for group, choice in sources.choices.items() if choice and not group.startswith("hydra/")}
    for group in [*groups, *sorted(chosen.keys() - set(groups))]:
        if group in chosen:
            folder, _, package = group.partition("@")
            key = package or folder
            node = config.get(key)
            options = _options(node, f"{key}.", said) if isinstance(node, DictConfig) else ()
            path = sources.file(f"{folder}/{chosen[group]}")
            parts.append(ConfigPart(group, str(chosen[group]), key, _read(path).about or UNSAID, options))
    keys = {part.key for part in parts}
    run = [str(key) for key in config if key not in keys]
    return tuple(Option(name, _typed(config, name), said.get(name, UNSAID)) for name in run), tuple(parts)


def _said(sources: Sources) -> dict[str, str]:
    """{option's full name: explanation}; a file wins over those it builds on, an experiment over none."""
    said: dict[str, str] = {}
    for config, package in sources.files:
        prefix = f"{package}." if package not in ("", "_global_") else ""
        for name, words in _read(sources.file(config)).options.items():
            if config.startswith("experiment/"):
                said.setdefault(prefix + name, words)
            else:
                said[prefix + name] = words
    return said


def _read(path: Path | None) -> Comments:
    return Comments("", {}, {}) if path is None else read(path)


def _options(node: DictConfig, prefix: str, said: Mapping[str, str], within: str = "") -> tuple[Option, ...]:
    """The options of a part, and those of parts within it."""
    found: list[Option] = []
    for name in (str(key) for key in node if not str(key).startswith("_")):
        full = f"{within}{name}"
        inner = None if OmegaConf.is_missing(node, name) or OmegaConf.is_interpolation(node, name) else node[name]
        if isinstance(inner, DictConfig) and any(one.startswith(f"{prefix}{full}.") for one in said):
            found += _options(inner, prefix, said, f"{full}.")
        else:
            found.append(Option(full, _typed(node, name), said.get(prefix + full, UNSAID)))
    return tuple(found)


def _typed(node: DictConfig, key: str) -> str:
    """A value as it is typed on the command line, resolved where that can be done already."""
    if OmegaConf.is_missing(node, key):
        return "???"
    try:
        plain: Any = OmegaConf.to_container(OmegaConf.create({key: node[key]}), resolve=True, enum_to_str=True)
    except OmegaConfBaseException:
        plain = OmegaConf.to_container(node, resolve=False, enum_to_str=True)
    text = yaml.safe_dump(plain[key], default_flow_style=True, width=10_000, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...").replace(", ", ",")
