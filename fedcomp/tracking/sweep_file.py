"""A YAML of `wandb sweep`: which keys W&B reads, and what the first run of the sweep would be given.

W&B ignores keys that it does not know, so that `paramters:` starts a sweep over nothing.
"""

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
        path: of its file. name: of the sweep, or of its file.
        first: one value of every parameter, as fedcomp's overrides.
        command: what an agent runs, as it stands in the file.
    """

    path: Path
    name: str
    first: tuple[str, ...]
    command: tuple[str, ...]

    @property
    def fixed(self) -> tuple[str, ...]:
        """The overrides in the command itself."""
        start = self.command.index("fedcomp") + 1 if "fedcomp" in self.command else 0
        return tuple(word for word in self.command[start:] if not word.startswith("${") and (start or "=" in word))

    def check_command(self) -> None:
        """Raise ValueError: an agent would not run fedcomp with the parameters, or W&B would not see the run."""
        if ARGUMENTS not in self.command or "fedcomp" not in self.command:
            raise ValueError(
                f"{self.path}: command must call fedcomp with {ARGUMENTS}: "
                f'["${{env}}", "fedcomp", "tracker=wandb", "tracker.mode=online", "{ARGUMENTS}"]'
            )
        if "tracker=wandb" not in (*self.fixed, *self.first):
            raise ValueError(f"{self.path}: W&B sees a run only with tracker=wandb: add it to command")


def read_sweep(path: Path) -> SweepFile:
    """Read a sweep and check its keys; `check_command` checks the rest, after the options.

    Raises ValueError: in one line, what cannot be read, is unknown or is missing.
    """
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
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
    words = tuple(map(str, command)) if isinstance(command, list) else ()
    return SweepFile(path, str(content.get("name") or path.stem), first, words)


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
