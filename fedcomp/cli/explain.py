"""The options of a composed config, each with its value and with the comment of the YAML that sets it."""

from __future__ import annotations

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


@dataclass(frozen=True)
class Sources:
    """The files that a config is composed of.

    Attributes:
        folders: with configs; the first folder that has a file wins.
        choices: {group: choice}.
        files: (config, such as `compressor/topk`; package, such as `downlink`) in the order of composition.
    """

    folders: Sequence[Path]
    choices: Mapping[str, str | None]
    files: Sequence[tuple[str, str]]

    def file(self, config: str) -> Path | None:
        """The YAML file of a config such as `compressor/topk`; None if there is none."""
        paths = (folder / f"{config}.yaml" for folder in self.folders)
        return next((path for path in paths if path.is_file()), None)


def explain(config: DictConfig, sources: Sources) -> tuple[tuple[Option, ...], tuple[ConfigPart, ...]]:
    """The options of the run itself, and its parts in the order of `conf/train.yaml`."""
    comments = _comments(sources)
    parts = []
    groups = [group for group in read(CONF / "train.yaml").groups if "/" not in group]
    chosen = {group: choice for group, choice in sources.choices.items() if choice and not group.startswith("hydra/")}
    for group in [*groups, *sorted(chosen.keys() - set(groups))]:
        if group in chosen:
            folder, _, package = group.partition("@")
            key = package or folder
            node = config.get(key)
            options = _options(node, f"{key}.", comments) if isinstance(node, DictConfig) else ()
            path = sources.file(f"{folder}/{chosen[group]}")
            parts.append(ConfigPart(group, str(chosen[group]), key, _read(path).about or NO_COMMENT, options))
    keys = {part.key for part in parts}
    run = [str(key) for key in config if key not in keys]
    return tuple(Option(name, _typed(config, name), comments.get(name, NO_COMMENT)) for name in run), tuple(parts)


def _comments(sources: Sources) -> dict[str, str]:
    """{option's full name: comment}; a later file replaces earlier comments, but an experiment only adds new ones."""
    comments: dict[str, str] = {}
    for config, package in sources.files:
        prefix = f"{package}." if package not in ("", "_global_") else ""
        for name, comment in _read(sources.file(config)).options.items():
            if config.startswith("experiment/"):
                comments.setdefault(prefix + name, comment)
            else:
                comments[prefix + name] = comment
    return comments


def _read(path: Path | None) -> Comments:
    return Comments("", {}, {}) if path is None else read(path)


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
