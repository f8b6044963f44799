"""The command line's words: flags and overrides in any order.

Hydra reads its arguments with argparse, which takes overrides from one place alone: `rounds=5 -m seed=0,1` fails there.
`parse` sorts them, flags first, and refuses in one line what argparse refuses with its usage.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SWITCHES = ("--help", "--hydra-help", "--version", "--resolve", "--run", "--multirun", "--shell-completion")
VALUES: dict[str, tuple[str, ...]] = {
    "--config-dir": (),
    "--config-path": (),
    "--config-name": (),
    "--package": (),
    "--experimental-rerun": (),
    "--cfg": ("job", "hydra", "all"),
    "--info": ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath"),
}
"""Flags that take a value, with the words that it may be; (): any."""
SHORT = {
    "-h": "--help",
    "-r": "--run",
    "-m": "--multirun",
    "-sc": "--shell-completion",
    "-c": "--cfg",
    "-p": "--package",
    "-cp": "--config-path",
    "-cn": "--config-name",
    "-cd": "--config-dir",
    "-i": "--info",
}


@dataclass(frozen=True)
class Arguments:
    """A command line, sorted.

    Attributes:
        flags: (full name, value) in the order given; the value of a switch is None.
        overrides: all other words, in the order given.
    """

    flags: tuple[tuple[str, str | None], ...]
    overrides: tuple[str, ...]

    def has(self, flag: str) -> bool:
        """Whether a flag is given, by its full name."""
        return bool(self.only(flag))

    def only(self, flag: str) -> tuple[tuple[str, str | None], ...]:
        """What is given of one flag."""
        return tuple(one for one in self.flags if one[0] == flag)

    @property
    def words(self) -> list[str]:
        """The command line that argparse understands: flags, then overrides."""
        return [name if value is None else f"{name}={value}" for name, value in self.flags] + list(self.overrides)

    @property
    def config_folders(self) -> list[Path]:
        """The user's own config folder, if `--config-dir` names one."""
        return [Path(value or "").expanduser().resolve() for _, value in self.only("--config-dir")]


def parse(words: Sequence[str]) -> Arguments:
    """Sort the words of a command line. All words after `--` are overrides.

    Raises:
        ValueError: an unknown flag, a flag without its value, a value that it cannot have, `--config-dir` twice.
    """
    flags: list[tuple[str, str | None]] = []
    overrides: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            overrides, left = [*overrides, *left], []
        elif word.startswith("-") and word != "-":
            flags.append(_flag(word, left))
        else:
            overrides.append(word)
    if sum(name == "--config-dir" for name, _ in flags) > 1:
        raise ValueError("--config-dir is given twice: give one folder")
    return Arguments(tuple(flags), tuple(overrides))


def value_of(word: str) -> str:
    """The full name of the flag `word` if the next word has to be its value, "" otherwise."""
    try:
        name = _full_name(word) if word.startswith("-") else ""
    except ValueError:
        return ""
    return name if name in VALUES and name != "--info" else ""


def _flag(word: str, left: list[str]) -> tuple[str, str | None]:
    """(full name, value) of the flag `word`; a value that is the next word is taken out of `left`."""
    given, equals, inline = word.partition("=")
    name = _full_name(given)
    if name in SWITCHES:
        if equals:
            raise ValueError(f"{given} takes no value: leave ={inline} out")
        return name, None
    allowed = VALUES[name]
    if equals:
        value = inline
    elif name == "--info" and (not left or left[0] not in allowed):
        value = "all"
    elif left and not left[0].startswith("-"):
        value = left.pop(0)
    else:
        value = ""
    if not value or (allowed and value not in allowed):
        wanted = f"one of {', '.join(allowed)}" if allowed else "a value"
        raise ValueError(f"{given} needs {wanted}" + (f", not {value}" if value else ""))
    return name, value


def _full_name(given: str) -> str:
    """The flag that `given` is, its short form, or the start of it alone."""
    names = [*SWITCHES, *VALUES]
    if given in names or given in SHORT:
        return SHORT.get(given, given)
    meant = [name for name in names if given.startswith("--") and name.startswith(given)]
    if len(meant) == 1:
        return meant[0]
    close = meant or difflib.get_close_matches(given, names, n=1)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    raise ValueError(f"there is no flag {given}{hint} (an option is given as key=value)")
