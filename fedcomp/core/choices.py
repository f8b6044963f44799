"""The YAML files of the config groups, and what they say: the one reader of `conf/` beside Hydra.

A choice may begin with another one of its group and say what differs:

    defaults: [lognormal, _self_]
    down_bps: 2.9e+7

Its options are then those of both files. References such as `${seed}` stay as they are written.
"""

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from omegaconf._utils import get_yaml_loader

from fedcomp.core.folders import CONF, part_name
from fedcomp.core.validate import as_typed

Plain = dict[str, Any]
FOLDERS = {"downlink": "compressor"}
"""{config key: folder of its choices}, where the two differ."""
INSTALLED = CONF
"""fedcomp's own configs, which do not change while it runs."""
FAST_LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


class _Loader(FAST_LOADER):  # type: ignore[misc, valid-type]
    """Reads numbers as Hydra does, several times as fast."""

    yaml_implicit_resolvers = get_yaml_loader().yaml_implicit_resolvers


def content(path: Path) -> Plain:
    """What one file says, not to be changed; {} if it is no mapping. Raises YAMLError if it is not valid YAML."""
    return _parsed(path.read_text(encoding="utf-8"))


@functools.cache
def _parsed(text: str) -> Plain:
    found = yaml.load(text, Loader=_Loader)
    return {str(key): value for key, value in found.items()} if isinstance(found, dict) else {}


def lineage(path: Path) -> list[Path]:
    """The files that a file's options stand in, by its defaults list; a later one's replace an earlier one's."""
    found = []
    listed = [entry for entry in content(path).get("defaults", ()) if isinstance(entry, str)]
    for entry in listed if "_self_" in listed else [*listed, "_self_"]:
        if entry == "_self_":
            found.append(path)
            continue
        beside = (path.parent / f"{entry}.yaml", CONF / path.parent.name / f"{entry}.yaml")
        found += next((lineage(one) for one in beside if one.is_file()), [])
    return found


def options(path: Path) -> Plain:
    """The options of a choice, with `_target_` and such, also those of the files that it begins with."""
    found = functools.reduce(_merged, map(content, lineage(path)))
    return {key: value for key, value in found.items() if key != "defaults"}


def choices(group: str, folder: Path = CONF) -> dict[str, Plain]:
    """{name: options} of every choice of a group, in the order of their names."""
    return dict(_installed_choices(group) if folder == INSTALLED else _read_choices(group, folder))


def _read_choices(group: str, folder: Path) -> dict[str, Plain]:
    return {path.stem: options(path) for path in sorted((folder / group).glob("*.yaml"))}


@functools.cache
def _installed_choices(group: str) -> dict[str, Plain]:
    """A run's identity asks for them dozens of times."""
    return _read_choices(group, INSTALLED)


def short_name(target: str) -> str | None:
    """`TopK` for a class of fedcomp in any module, `mnist.load` for a function; None if it is not fedcomp's."""
    names = target.split(".")
    if names[0] != "fedcomp":
        return None
    return names[-1] if names[-1][:1].isupper() else ".".join(names[-2:])


def choices_of(group: str, target: str, folder: Path = CONF) -> dict[str, Plain]:
    """{name: options} of the choices whose class `target` names, in whichever module; first the one named after it."""
    short = short_name(target)
    found = {
        name: one
        for name, one in choices(group, folder).items()
        if one.get("_target_") == target or (short and short_name(str(one.get("_target_"))) == short)
    }
    return dict(sorted(found.items(), key=lambda item: item[0] != part_name(str(item[1]["_target_"]))))


def called(group: str, given: Mapping[str, Any]) -> str:
    """What a part is called: as the choice of its class whose values it has where they differ; of none, as `part_name`.

    So `dasha`, of the class that `marina` has too.
    """
    own, differ = _of_class(group, str(given["_target_"]))
    fitting = [choice for choice, one in own.items() if all(given.get(key) == one.get(key) for key in differ)]
    return fitting[0] if fitting else part_name(given["_target_"])


@functools.cache
def _of_class(group: str, target: str) -> tuple[dict[str, Plain], set[str]]:
    """The choices of a class, and the options in which they differ. A report asks for every part of every run."""
    own = choices_of(group, target)
    return own, {
        key for one in own.values() for key in one if any(one[key] != other.get(key) for other in own.values())
    }


def parts(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every mapping with a `_target_` in a config, however deep."""
    if isinstance(value, Mapping):
        if "_target_" in value:
            yield value
        for one in value.values():
            yield from parts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from parts(one)


def run_options() -> Plain:
    """The run's own keys in `conf/train.yaml`."""
    return {key: value for key, value in content(CONF / "train.yaml").items() if key not in ("defaults", "hydra")}


def default_choices() -> dict[str, str]:
    """{group, such as `compressor@downlink`: name of its default choice}."""
    entries = [entry.items() for entry in content(CONF / "train.yaml")["defaults"] if isinstance(entry, dict)]
    return {str(group): str(choice) for pairs in entries for group, choice in pairs if choice is not None}


def default_choice(key: str) -> str:
    """The default choice of a config key: of `server`, or of `downlink`, which is `compressor@downlink`'s."""
    return next(choice for group, choice in default_choices().items() if group.rpartition("@")[2] == key)


def changes(key: str, given: Mapping[str, Any]) -> list[str]:
    """The overrides by which a part differs from its default: `compressor=topk`, `server.lr=0.5`; [] if it does not."""
    default = options(CONF / FOLDERS.get(key, key) / f"{default_choice(key)}.yaml")
    if given.get("_target_") != default.get("_target_"):
        return [f"{key}={part_name(given.get('_target_'))}"]
    names = sorted({*given, *default})
    return [f"{key}.{name}={as_typed(given.get(name))}" for name in names if given.get(name) != default.get(name)]


def _merged(old: Any, new: Any) -> Any:
    """As Hydra merges: mappings option by option, anything else as a whole."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return old | {key: _merged(old.get(key), value) for key, value in new.items()}
