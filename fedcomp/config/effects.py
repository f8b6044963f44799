"""Refuses options that would have no effect beside the others, by the words of the YAML that explains them.

An option's comment begins with what it depends on:

    lr_final: 0.0    # with schedule=linear|cosine|exponential: last lr as a share of lr
    decay: 1.0       # with memory: share of the old error kept
    fraction: 0.1    # without k: share of entries sent

`with a=x|y` is: a has one of these values; `with a`: a is given, neither null nor false; `without a`: a is null. The
other option stands beside it, in the same mapping. An option counts as given if its value is that of no YAML of its
class; null is never given. What a user's own class depends on stands in the YAMLs beside its module.
"""

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from fedcomp.config.comments import read
from fedcomp.config.schema import PARTS
from fedcomp.core.choices import FOLDERS, choices_of
from fedcomp.core.folders import CONF, PACKAGE
from fedcomp.core.validate import as_typed

CONDITION = re.compile(r"(with|without) (\w+)(?:=([\w|.-]+))?: ")


@dataclass(frozen=True)
class Condition:
    """What an option needs beside it to have an effect.

    Attributes:
        option: the other one. values: that it must have; none: any but null and false. given: False: it must be null.
    """

    option: str
    values: tuple[str, ...] = ()
    given: bool = True

    @classmethod
    def of(cls, comment: str) -> "Condition | None":
        """The condition at the beginning of an option's comment; None: there is none."""
        found = CONDITION.match(comment)
        if found is None:
            return None
        word, option, values = found.groups()
        return cls(option, tuple(values.split("|")) if values else (), word == "with")

    def holds(self, value: Any) -> bool:
        """Whether the option has an effect where the other one has this value."""
        if self.values:
            return _text(value) in self.values
        return (value is not None and value is not False) == self.given

    def refusal(self, name: str, value: Any, beside: Any) -> str:
        """What is wrong with an option of this full name and value, where the other one has the value `beside`."""
        other = f"{name.rpartition('.')[0]}.{self.option}"
        start = f"{name}={_text(value)} has no effect with {other}={_text(beside)}: leave it out, or "
        if self.given and not self.values and beside is None:
            return f"{start}give {other}"
        return f"{start}take {other}={' or '.join(self.values) or ('true' if self.given else 'null')}"


def check_effects(config: DictConfig) -> None:
    """Raise ValueError for an option that is given and has no effect beside the others."""
    for part in PARTS:
        node = config[part]
        if isinstance(node, DictConfig) and "_target_" in node:
            _check_part(part, node)


def _check_part(part: str, node: DictConfig) -> None:
    target, group = str(node["_target_"]), FOLDERS.get(part, part)
    folder = _folder(target)
    written = choices_of(group, target, folder)
    comments: dict[str, str] = {}
    for choice in written:
        comments |= read(folder / group / f"{choice}.yaml").options
    for name, comment in comments.items():
        condition, missing = Condition.of(comment), object()
        value = OmegaConf.select(node, name)
        if condition is None or value is None:
            continue
        if any(_select(defaults, name, missing) == value for defaults in written.values()):
            continue
        inside = name.rpartition(".")[0]
        other = f"{inside}.{condition.option}" if inside else condition.option
        places = [OmegaConf.to_container(node, resolve=True), *written.values()]
        beside = next((one for place in places if (one := _select(place, other, missing)) is not missing), missing)
        if beside is not missing and not condition.holds(beside):
            raise ValueError(condition.refusal(f"{part}.{name}", value, beside))


def _folder(target: str) -> Path:
    """The folder whose groups explain a class: conf/, or the one in which a user's module lies."""
    first = target.partition(".")[0]
    if first == PACKAGE.name:
        return CONF
    try:
        found = importlib.util.find_spec(first)
    except (ImportError, ValueError):
        return CONF
    if found is None or found.origin is None:
        return CONF
    module = Path(found.origin)
    return module.parents[1] if found.submodule_search_locations else module.parent


def _select(content: Any, name: str, missing: object) -> Any:
    """An option of nested mappings by its dotted name."""
    for key in name.split("."):
        if not isinstance(content, Mapping) or key not in content:
            return missing
        content = content[key]
    return content


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else as_typed(value)
