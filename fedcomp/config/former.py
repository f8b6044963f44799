"""The config of a finished run as this version of fedcomp would compose it, whichever version wrote it.

Since a run was made, classes may have moved to other modules, and parts and options may have been added: their defaults
change nothing (`identity.py`). So classes are found by their names, and what a config lacks is at its default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from omegaconf import DictConfig, OmegaConf

from fedcomp.config.defaults import default_choice
from fedcomp.config.identity import GROUPS, choice_of, choices_of, short_name
from fedcomp.config.schema import PARTS, RunConfig


def as_composed_now(config: Mapping[str, Any], note: Callable[[str], None]) -> DictConfig:
    """A run's config with the types and the classes of this version.

    Args:
        config: resolved, with plain values, such as a run's `config.yaml`.
        note: receives one line if the config has keys that this version does not have: they are left out.
    Raises:
        ValueError: a part is no mapping.
    """
    known = {key.name for key in fields(RunConfig)}
    unknown = sorted(config.keys() - known)
    if unknown:
        note(f"this version of fedcomp has no {', '.join(unknown)}: left out of the run's config")
    kept = {key: value for key, value in config.items() if key in known}
    for part in PARTS:
        group = GROUPS.get(part, part)
        node = kept.get(part)
        if node is not None and not isinstance(node, Mapping):
            raise ValueError(f"the run's config has {part}={node!r}, but a part must be a mapping with its options")
        kept[part] = default_choice(part)[1] if node is None else _part(group, node)
    typed = OmegaConf.merge(OmegaConf.structured(RunConfig), kept)
    assert isinstance(typed, DictConfig)
    return typed


def _part(group: str, node: Mapping[str, Any]) -> Any:
    """A part with the options that its YAML has by now, and its classes where they lie now."""
    found = choice_of(group, str(node.get("_target_")))
    added = {} if found is None else {name: value for name, value in found.items() if name not in node}
    return _moved(dict(node) | added, _targets(group))


def _moved(value: Any, targets: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {
            key: targets.get(short_name(str(one)) or "", one) if key == "_target_" else _moved(one, targets)
            for key, one in value.items()
        }
    return [_moved(one, targets) for one in value] if isinstance(value, list) else value


def _targets(group: str) -> dict[str, str]:
    """{short name of a class: where it lies} of every part in the YAMLs of a group."""

    def walk(value: Any) -> Iterator[str]:
        if isinstance(value, Mapping):
            if "_target_" in value:
                yield str(value["_target_"])
            for one in value.values():
                yield from walk(one)

    return {short_name(target) or target: target for content in choices_of(group) for target in walk(content)}
