"""A YAML of `wandb sweep`: which keys W&B reads, and what the first run of the sweep would be given.

W&B ignores keys that it does not know, so that `paramters:` starts a sweep over nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcomp.core.validate import suggest

KEYS = (
    "command",
    "controller",
    "description",
    "early_terminate",
    "entity",
    "method",
    "metric",
    "name",
    "parameters",
    "program",
    "project",
    "run_cap",
)
PARAMETER = ("distribution", "max", "min", "mu", "parameters", "probabilities", "q", "sigma", "value", "values")
METHODS = ("bayes", "grid", "random")
ARGUMENTS = "${args_no_hyphens}"


@dataclass(frozen=True)
class SweepFile:
    """A sweep.

    Attributes:
        name: of the sweep, or of its file. first: one value of every parameter, as fedcomp's overrides.
        fixed: what else its command gives fedcomp.
    """

    name: str
    first: tuple[str, ...]
    fixed: tuple[str, ...]


def read_sweep(path: Path) -> SweepFile:
    """Read and check a sweep.

    Raises:
        ValueError: in one line, what cannot be read, is unknown or is missing.
    """
    import yaml

    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, Mapping):
        raise ValueError(f"{path} is no sweep: it must be a mapping with method and parameters")
    _refuse_unknown(path, "key", content, KEYS)
    if content.get("method") not in METHODS:
        raise ValueError(f"{path}: method={content.get('method')} must be one of {', '.join(METHODS)}")
    parameters = content.get("parameters")
    if not isinstance(parameters, Mapping) or not parameters:
        raise ValueError(f"{path}: parameters must be a mapping of fedcomp's options, such as seed: {{values: [0, 1]}}")
    first = tuple(f"{name}={_written(_first(path, str(name), entry))}" for name, entry in parameters.items())
    command = content.get("command")
    if not isinstance(command, list) or ARGUMENTS not in command or "fedcomp" not in command:
        raise ValueError(
            f"{path}: command must call fedcomp with {ARGUMENTS}: "
            f'["${{env}}", "fedcomp", "tracker=wandb", "tracker.mode=online", "{ARGUMENTS}"]'
        )
    fixed = [str(word) for word in command[command.index("fedcomp") + 1 :] if word != ARGUMENTS]
    if "tracker=wandb" not in (*fixed, *first):
        raise ValueError(f"{path}: W&B sees a run only with tracker=wandb: add it to command")
    return SweepFile(str(content.get("name") or path.stem), first, tuple(fixed))


def _first(path: Path, name: str, entry: Any) -> Any:
    """A value that the parameter may have."""
    if not isinstance(entry, Mapping):
        raise ValueError(f"{path}: {name} must be {{value: ...}}, {{values: [...]}} or {{min: ..., max: ...}}")
    _refuse_unknown(path, f"{name}: key", entry, PARAMETER)
    if "parameters" in entry:
        raise ValueError(f"{path}: {name} has nested parameters: write them as dotted keys, {name}.<option>")
    if "value" in entry:
        return entry["value"]
    if isinstance(entry.get("values"), list) and entry["values"]:
        return entry["values"][0]
    if "min" in entry and "max" in entry:
        return entry["min"]
    if "mu" in entry:
        return entry["mu"]
    raise ValueError(f"{path}: {name} must have value, values (a list), or min and max")


def _written(value: Any) -> str:
    """A value as it stands on the command line."""
    return "null" if value is None else str(value)


def _refuse_unknown(path: Path, what: str, given: Iterable[Any], allowed: tuple[str, ...]) -> None:
    for key in given:
        if key not in allowed:
            raise ValueError(f"{path}: {what} {key} is unknown{suggest(str(key), allowed)}")
