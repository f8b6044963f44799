"""The identity of a run: what its user chose. The name of the run's folder is a hash of it.

The identity has the settings that differ from the defaults: keys of the run whose values are not those of
`conf/train.yaml`, and parts, by the name of their YAML with the options whose values are not those of that YAML. A
default choice with default options is left out. So the folders of finished runs stay valid when a class moves, or when
a group or an option is added with a default that changes nothing.

Who changes a default in a YAML raises `defaults_version` in that YAML (1 if missing). It belongs to the identity, so
that runs before and after the change have different folders.

A part of the user's own, whose `_target_` is outside this package, is identified by its whole node.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf

from fedcomp.core.choices import FOLDERS, Plain, choices, choices_of, default_choices, parts, run_options, short_name
from fedcomp.records.run_folder import VERSION, WITHOUT_EFFECT

HASH_DIGITS = 10


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
        config: resolved, with plain values, such as the `config.yaml` of a run.
    """
    run, defaults = run_options(), {group.rpartition("@")[2]: choice for group, choice in default_choices().items()}
    chosen: Plain = {}
    for key, value in config.items():
        if key in WITHOUT_EFFECT or key == VERSION:
            continue
        if isinstance(value, Mapping) and "_target_" in value:
            moved = {"path"} if value.get("contents") is not None else set()  # the file itself, not where it is
            options = {
                name: one for name, one in value.items() if f"{key}.{name}" not in WITHOUT_EFFECT and name not in moved
            }
            part = _part(FOLDERS.get(key, key), options, config)
            if part != {defaults.get(key): {}}:
                chosen[key] = part
        elif key not in run or value != run[key]:
            chosen[key] = value
    if run.get(VERSION, 1) > 1:
        chosen[VERSION] = run[VERSION]
    return chosen


def _part(group: str, node: Mapping[str, Any], config: Mapping[str, Any]) -> Plain:
    """{choice: {option: value}} with the options that differ from the YAML of the choice."""
    found = choices_of(group, str(node["_target_"]))
    if not found or not short_name(str(node["_target_"])):
        return {"_target_": node["_target_"], "options": _nested(group, _options(node))}
    name, file = next(iter(found.items()))
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


def _nested_defaults(group: str) -> dict[str, Plain]:
    """{class name: default options} of the parts inside the choices of a group."""
    inside = (part for one in choices(group).values() for part in parts([*_options(one).values()]))
    named = [(short_name(str(part["_target_"])), part) for part in inside]
    return {short: _options(part) for short, part in named if short}


def _resolved(file: Plain, config: Mapping[str, Any]) -> Plain:
    """The options of a choice, with references to keys of this run resolved."""
    if "${" not in str(file):
        return _options(file)
    whole = OmegaConf.create({**{str(key): value for key, value in config.items()}, "_choice_": _options(file)})
    plain = OmegaConf.to_container(whole["_choice_"], resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
