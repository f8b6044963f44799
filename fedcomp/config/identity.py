"""What a run is, said by what its user chose: the text that its folder's hash is made of.

The identity holds what differs from the defaults: the run's own keys whose values are not those of `conf/train.yaml`,
and each part, by the name of its choice (a YAML file beside `conf/train.yaml`) with the options whose values are not
that file's. A choice that is the default, with default options, is left out. So a class may move, and a group or an
option may be added with a default that changes nothing, and finished runs keep their folders.

Where a default itself changes, runs before and after it are different runs that both say nothing: whoever changes it
raises `defaults_version` in the same file (1 where it is not written). It belongs to the identity.

A part of the user's own, with a `_target_` outside this package, is identified by its whole node.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from fedcomp.config.defaults import CONF
from fedcomp.records.run_folder import VERSION, WITHOUT_EFFECT

GROUPS = {"downlink": "compressor"}
"""Config keys whose choices lie in a folder of another name."""
HASH_DIGITS = 10

Plain = dict[str, Any]


def config_hash(config: Mapping[str, Any]) -> str:
    """Ten hex digits of the identity of a resolved config."""
    text = json.dumps(identity(config), sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=HASH_DIGITS // 2).hexdigest()


def identity(config: Mapping[str, Any]) -> Plain:
    """What the user chose, as plain values that can be written as JSON.

    Args:
        config: resolved, with plain values, as `config.yaml` of a run holds it; an earlier version may have written it.
    """
    run = _defaults_of_run()
    found: Plain = {}
    for key, value in config.items():
        if key in WITHOUT_EFFECT or key == VERSION:
            continue
        if isinstance(value, Mapping) and "_target_" in value:
            options = {name: one for name, one in value.items() if f"{key}.{name}" not in WITHOUT_EFFECT}
            part = _part(GROUPS.get(key, key), options, config)
            if part != {_default_choices().get(key): {}}:
                found[key] = part
        elif key not in run or value != run[key]:
            found[key] = value
    if run.get(VERSION, 1) > 1:
        found[VERSION] = run[VERSION]
    return found


def _part(group: str, node: Mapping[str, Any], config: Mapping[str, Any]) -> Plain:
    """{choice: {option: value}}, with the options that differ from the choice's file."""
    short = _short(str(node["_target_"]))
    choice = _choice(group, short)
    if choice is None:
        return {"_target_": node["_target_"], "options": _nested(group, _options(node))}
    name, file = choice
    defaults = _resolved(file, group, config)
    differing = {
        key: value for key, value in _options(node).items() if key not in defaults or _plain(value) != defaults[key]
    }
    version = {VERSION: file[VERSION]} if file.get(VERSION, 1) > 1 else {}
    return {name: _nested(group, differing) | version}


def _options(node: Mapping[str, Any]) -> Plain:
    return {str(key): value for key, value in node.items() if key not in ("_target_", "_partial_", VERSION)}


def _nested(group: str, value: Any) -> Any:
    """Parts within options are said by their class, and by what differs from the file that has such a part."""
    if isinstance(value, Mapping):
        if "_target_" not in value:
            return {str(key): _nested(group, one) for key, one in value.items()}
        short = _short(str(value["_target_"]))
        defaults = _defaults_within(group).get(short, {}) if short else {}
        kept = {key: one for key, one in _options(value).items() if key not in defaults or one != defaults[key]}
        return {short or str(value["_target_"]): _nested(group, kept)}
    if isinstance(value, (list, tuple)):
        return [_nested(group, one) for one in value]
    return value


def _short(target: str) -> str | None:
    """`TopK` of fedcomp's class wherever it lies, `mnist.load` of a function; None: it is not fedcomp's."""
    words = target.split(".")
    if words[0] != "fedcomp":
        return None
    return words[-1] if words[-1][:1].isupper() else ".".join(words[-2:])


def _choice(group: str, short: str | None) -> tuple[str, Plain] | None:
    """(name, content) of the file that stands for a class; of several, the one called like its module comes first."""
    found = [(name, file) for name, file in _files(group) if short and _short(str(file.get("_target_"))) == short]
    return min(found, key=lambda one: (one[0] != str(one[1]["_target_"]).split(".")[-2], one[0]), default=None)


@functools.cache
def _files(group: str) -> tuple[tuple[str, Plain], ...]:
    """(name, content) of every choice of a group; the content's interpolations are not resolved."""
    paths = sorted((CONF / group).glob("*.yaml"))
    return tuple((path.stem, _load(OmegaConf.load(path))) for path in paths)


def _load(node: Any, resolve: bool = False) -> Plain:
    plain = OmegaConf.to_container(node, resolve=resolve)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items() if key != "defaults"}


@functools.cache
def _defaults_of_run() -> Plain:
    """The run's own keys in `conf/train.yaml`."""
    file = _load(OmegaConf.load(CONF / "train.yaml"))
    return {key: value for key, value in file.items() if key != "hydra"}


@functools.cache
def _default_choices() -> dict[str, str]:
    """{config key: name of the choice} as `conf/train.yaml` lists them."""
    listed = OmegaConf.to_container(OmegaConf.load(CONF / "train.yaml").defaults)
    assert isinstance(listed, list)
    pairs = [pair for entry in listed if isinstance(entry, dict) for pair in entry.items()]
    return {str(group).rpartition("@")[2]: str(choice) for group, choice in pairs}


@functools.cache
def _defaults_within(group: str) -> dict[str, Plain]:
    """Of each class that a part within a choice of the group is made of, the options that its file gives it."""

    def walk(node: Any) -> Iterator[tuple[str, Plain]]:
        if isinstance(node, dict):
            short = _short(str(node["_target_"])) if "_target_" in node else None
            if short:
                yield short, _options(node)
            for one in node.values():
                yield from walk(one)

    return {short: own for _, file in _files(group) for one in _options(file).values() for short, own in walk(one)}


def _resolved(file: Plain, group: str, config: Mapping[str, Any]) -> Plain:
    """A choice's options as they would be in this run, whose keys they may refer to."""
    if "${" not in str(file):
        return _options(file)
    whole = OmegaConf.create({**{str(key): value for key, value in config.items()}, "_choice_": _options(file)})
    node = whole["_choice_"]
    assert isinstance(node, DictConfig)
    return _load(node, resolve=True)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
