"""Parses the command line: Hydra's flags and overrides in any order.

Hydra uses argparse, which needs all overrides in one sequence: it refuses `rounds=5 -m seed=0,1`. `parse` puts the
flags first. Its errors are one line, where argparse prints its usage.
"""

import argparse
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra._internal.utils import get_args_parser

from fedcomp.config.comments import read
from fedcomp.core.folders import CONF

FLAGS = {action.option_strings[0]: action for action in get_args_parser()._actions if action.option_strings}
"""{a flag's full name: what Hydra's parser makes of it}."""
SAFE = "--safe"
"""The same as safe=true."""
SHORT = {short: name for name, action in FLAGS.items() for short in action.option_strings[1:]}


@dataclass(frozen=True)
class Arguments:
    """A parsed command line.

    Attributes:
        flags: (full name, value) in the order given; the value of a switch is None.
        overrides: all other arguments, in the order given.
    """

    flags: tuple[tuple[str, str | None], ...]
    overrides: tuple[str, ...]

    def has(self, flag: str) -> bool:
        """Whether a flag is given, by its full name."""
        return any(name == flag for name, _ in self.flags)

    @property
    def argv(self) -> list[str]:
        """The arguments in the order that argparse needs: flags, then overrides."""
        return [name if value is None else f"{name}={value}" for name, value in self.flags] + list(self.overrides)

    @property
    def config_folder(self) -> Path | None:
        """The folder that `--config-dir` names; None without the flag."""
        named = [value for name, value in self.flags if name == "--config-dir"]
        return Path(named[0] or "").expanduser().resolve() if named else None


def parse(words: Sequence[str]) -> Arguments:
    """Parse a command line. All arguments after `--` are overrides.

    Raises ValueError: an unknown flag, a flag without its value or with one that is not allowed, `--config-dir` twice.
    """
    flags: list[tuple[str, str | None]] = []
    overrides: list[str] = []
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        if word == "--":
            overrides, remaining = [*overrides, *remaining], []
        elif word == SAFE:
            overrides.append("safe=true")
        elif word.startswith("-") and word != "-":
            flags.append(_flag(word, remaining))
        else:
            overrides.append(word)
    if sum(name == "--config-dir" for name, _ in flags) > 1:
        raise ValueError("--config-dir is given twice: give one folder")
    return Arguments(tuple(flags), tuple(overrides))


def flag_with_value(word: str) -> str:
    """The full name of the flag `word` if the next argument must be its value, else ""."""
    try:
        name = _full_name(word) if word.startswith("-") else ""
    except ValueError:
        return ""
    return name if name and FLAGS[name].nargs is None else ""


def _flag(word: str, remaining: list[str]) -> tuple[str, str | None]:
    """(full name, value) of the flag `word`; removes the value from `remaining` if it is the next argument."""
    given, equals, value = word.partition("=")
    name = _full_name(given)
    action = FLAGS[name]
    if action.nargs == 0:
        if equals:
            raise ValueError(f"{given} takes no value: leave ={value} out")
        return name, None
    allowed = tuple(action.choices or ())
    if not equals and action.nargs == argparse.OPTIONAL and (not remaining or remaining[0] not in allowed):
        value = str(action.const)
    elif not equals and remaining and not remaining[0].startswith("-"):
        value = remaining.pop(0)
    if not value or (allowed and value not in allowed):
        wanted = f"one of {', '.join(allowed)}" if allowed else "a value"
        raise ValueError(f"{given} needs {wanted}" + (f", not {value}" if value else ""))
    return name, value


def _full_name(given: str) -> str:
    """The flag that `given` names: in full, by its short form, or by an unambiguous prefix."""
    if given in FLAGS or given in SHORT:
        return SHORT.get(given, given)
    matches = [name for name in FLAGS if given.startswith("--") and name.startswith(given)]
    if len(matches) == 1:
        return matches[0]
    option = given.lstrip("-")
    known = read(CONF / "train.yaml")
    if option.partition(".")[0] in {*known.options, *(group.partition("@")[2] or group for group in known.groups)}:
        raise ValueError(f"there is no flag {given}: an option has no dashes before its name: {option}=VALUE")
    close = matches or difflib.get_close_matches(given, FLAGS, n=1)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    raise ValueError(f"there is no flag {given}{hint} (an option is given as key=value)")
