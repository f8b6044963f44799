"""The identity of a run: what its user chose. The name of the run's folder is a hash of it.

The identity has the settings that differ from the defaults: keys of the run whose values are not those of
`conf/train.yaml`, and parts, by the name of their YAML with the options whose values are not those of that YAML. A
default choice with default options is left out. So the folders of finished runs stay valid when a class moves, or when
a group or an option is added with a default that changes nothing.

Who changes a default in a YAML raises `defaults_version` in that YAML (1 if missing). It belongs to the identity, so
that runs before and after the change have different folders.

A part of the user's own, whose `_target_` is outside this package, is identified by its whole node.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from fedcomp.config.defaults import default_choices, train_yaml
from fedcomp.core.folders import CONF
from fedcomp.records.run_folder import VERSION, WITHOUT_EFFECT

GROUPS = {"downlink": "compressor"}
"""{config key: folder of its choices}, where the two differ."""
HASH_DIGITS = 10

Plain = dict[str, Any]


def config_hash(config: Mapping[str, Any]) -> str:
    """Ten hex digits of the identity of a resolved config."""
    return hash_of(identity(config))


def hash_of(identity: Any) -> str:
    """Ten hex digits of an identity."""
    text = json.dumps(identity, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=HASH_DIGITS // 2).hexdigest()


def identity(config: Mapping[str, Any]) -> Plain:
    """What the user chose, as plain values for JSON.

    Args:
        config: resolved, with plain values, such as the `config.yaml` of a run, also of an earlier version's.
    """
    run = _run_defaults()
    chosen: Plain = {}
    for key, value in config.items():
        if key in WITHOUT_EFFECT or key == VERSION:
            continue
        if isinstance(value, Mapping) and "_target_" in value:
            moved = {"path"} if value.get("contents") is not None else set()  # the file itself, not where it is
            options = {
                name: one for name, one in value.items() if f"{key}.{name}" not in WITHOUT_EFFECT and name not in moved
            }
            part = _part(GROUPS.get(key, key), options, config)
            if part != {_default_choices().get(key): {}}:
                chosen[key] = part
        elif key not in run or value != run[key]:
            chosen[key] = value
    if run.get(VERSION, 1) > 1:
        chosen[VERSION] = run[VERSION]
    return chosen


def _part(group: str, node: Mapping[str, Any], config: Mapping[str, Any]) -> Plain:
    """{choice: {option: value}} with the options that differ from the YAML of the choice."""
    choice = _choice(group, short_name(str(node["_target_"])))
    if choice is None:
        return {"_target_": node["_target_"], "options": _nested(group, _options(node))}
    name, file = choice
    defaults = _resolved(file, config)
    differing = {
        key: value for key, value in _options(node).items() if key not in defaults or _plain(value) != defaults[key]
    }
    version = {VERSION: file[VERSION]} if file.get(VERSION, 1) > 1 else {}
    return {name: _nested(group, differing) | version}


def _options(node: Mapping[str, Any]) -> Plain:
    return {str(key): value for key, value in node.items() if key not in ("_target_", "_partial_", VERSION)}


def _nested(group: str, value: Any) -> Any:
    """A value with each part inside it replaced by {class name: options that differ from the YAML with such a part}."""
    if isinstance(value, Mapping):
        if "_target_" not in value:
            return {str(key): _nested(group, one) for key, one in value.items()}
        short = short_name(str(value["_target_"]))
        defaults = _nested_defaults(group).get(short, {}) if short else {}
        differing = {key: one for key, one in _options(value).items() if key not in defaults or one != defaults[key]}
        return {short or str(value["_target_"]): _nested(group, differing)}
    if isinstance(value, (list, tuple)):
        return [_nested(group, one) for one in value]
    return value


def short_name(target: str) -> str | None:
    """`TopK` for a class of fedcomp in any module, `mnist.load` for a function; None if it is not fedcomp's."""
    names = target.split(".")
    if names[0] != "fedcomp":
        return None
    return names[-1] if names[-1][:1].isupper() else ".".join(names[-2:])


def choice_of(group: str, target: str) -> Plain | None:
    """The content of the YAML in a group whose class `target` names, in whichever module; None: there is none."""
    found = _choice(group, short_name(target))
    return None if found is None else found[1]


def choices_of(group: str) -> list[Plain]:
    """The contents of a group's YAMLs, with references as they are written."""
    return [content for _, content in _files(group)]


def _choice(group: str, short: str | None) -> tuple[str, Plain] | None:
    """(name, content) of the YAML of a class; of several, the one that is named after the class's module."""
    if short is None:
        return None
    files = [(name, file) for name, file in _files(group, short) if short_name(str(file.get("_target_"))) == short]
    return min(files, key=lambda one: (one[0] != str(one[1]["_target_"]).split(".")[-2], one[0]), default=None)


@functools.cache
def _files(group: str, naming: str = "") -> tuple[tuple[str, Plain], ...]:
    """(name, content) of every choice of a group whose text has the word `naming`: reading all takes half a second.

    The content's interpolations are not resolved.
    """
    paths = (path for path in sorted((CONF / group).glob("*.yaml")) if naming in path.read_text(encoding="utf-8"))
    return tuple((path.stem, _load(OmegaConf.load(path))) for path in paths)


def _load(node: Any, resolve: bool = False) -> Plain:
    plain = OmegaConf.to_container(node, resolve=resolve)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items() if key != "defaults"}


@functools.cache
def _run_defaults() -> Plain:
    """The run's own keys in `conf/train.yaml`."""
    file = _load(train_yaml())
    return {key: value for key, value in file.items() if key != "hydra"}


@functools.cache
def _default_choices() -> dict[str, str]:
    """{config key: name of its default choice}."""
    return {group.rpartition("@")[2]: choice for group, choice in default_choices().items()}


@functools.cache
def _nested_defaults(group: str) -> dict[str, Plain]:
    """{class name: default options} of the parts inside the choices of a group."""

    def walk(node: Any) -> Iterator[tuple[str, Plain]]:
        if isinstance(node, dict):
            short = short_name(str(node["_target_"])) if "_target_" in node else None
            if short:
                yield short, _options(node)
            for one in node.values():
                yield from walk(one)

    return {
        name: options for _, file in _files(group) for one in _options(file).values() for name, options in walk(one)
    }


def _resolved(file: Plain, config: Mapping[str, Any]) -> Plain:
    """The options of a choice's YAML, with references to keys of this run resolved."""
    if "${" not in str(file):
        return _options(file)
    whole = OmegaConf.create({**{str(key): value for key, value in config.items()}, "_choice_": _options(file)})
    node = whole["_choice_"]
    assert isinstance(node, DictConfig)
    return _load(node, resolve=True)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
