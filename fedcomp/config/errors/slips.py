"""What a slip on the command line was meant to be: an option without its part or of another choice, blanks, a range."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedcomp.config.schema import PARTS, RunConfig
from fedcomp.core.choices import FOLDERS, choices
from fedcomp.core.folders import part_name
from fedcomp.core.validate import is_number

OTHER_WORDS = {
    "learning_rate": "lr",
    "local_epochs": "epochs",
    "local_steps": "steps",
    "clients": "num_clients",
    "n_clients": "num_clients",
    "bs": "batch_size",
    "num_rounds": "rounds",
}
"""{what others call an option: its name here}."""
RANGE = re.compile(r"(\d+)(?:-|\.\.|:)(\d+)")
"""0-3, 0..3, 0:3: what range(0,4) is in a grid."""
FREE = frozenset(key.name for key in fields(RunConfig) if key.type in (str, str | None)) | {"vars", "figures"}
"""Options of the run whose values may hold any text, also that of another option."""
NEXT = re.compile(
    rf"[\s,;]+'?(?=[~+]*(?:experiment|{'|'.join(key.name for key in fields(RunConfig))})(?:[.@/][\w.@/]*)?=)"
)
"""What stands before the name of another option in one text."""
PLAIN = re.compile(r"(?:[-+.,\s\deE]|true|false|null)*")
"""Values that are no text: numbers, true, false, null."""
LISTED = 12
"""Choices that a message names."""


def elsewhere(name: str, value: str, config: Mapping[str, Any], folders: Sequence[Path]) -> str | None:
    """The error message for an unknown option that another part of the run has, or another choice; None: none has.

    Args:
        name: as it was given, `lr`, `compressor.fraction`. value: its value.
        config: composed of the choices that were made. folders: of configs.
    """
    part, _, given = name.rpartition(".")
    option = OTHER_WORDS.get(given, given)
    places = [part] if part else ["", *(one for one in PARTS if one != "downlink")]
    meant = [f"{place}.{option}".lstrip(".") for place in places if _has(config, place, option)]
    if meant:
        return f"there is no option '{name}'; did you mean {' or '.join(f'{one}={value}' for one in meant)}?"
    for group in places if part in PARTS else places[1:]:
        having = [choice for choice, options in _choices(group, folders).items() if option in options]
        if having and _has(config, group, "_target_"):
            many, names = len(having) > 1, ", ".join(having[:LISTED]) + (", ..." if len(having) > LISTED else "")
            whose = f"{len(having)} choices ({names})" if many else names
            own, key = part_name(config[group]["_target_"]), "compressor@downlink" if group == "downlink" else group
            return (
                f"there is no option '{name}': {group} is {own}, and {option} belongs to {whose}; take "
                f"{key}={'CHOICE' if many else whose} {group}.{option}={value}"
            )
    return None


def blanks(arguments: Sequence[str]) -> str | None:
    """The error message for words without =, which blanks on the command line have torn apart; None: there are none."""
    torn = next((at for at, word in enumerate(arguments) if "=" not in word.strip("=") and word[:1] != "~"), None)
    if torn is None:
        return None
    before, word, after = (arguments[at] if 0 <= at < len(arguments) else "" for at in (torn - 1, torn, torn + 1))
    if word[:1] == "," or before[-1:] == ",":
        return f"a blank tears '{before} {word}' apart: give {before}{word}"
    if (word[-1:] == "=" and "=" in after.strip("=")) or (not after and word[-1:] == "="):
        return f"'{word}' has no value: give {word}VALUE (`fedcomp --help` lists the options)"
    if word[-1:] == "=" or after[:1] == "=":
        pieces = [word, *arguments[torn + 1 : torn + (3 if after == "=" else 2)]]
        return f"a blank tears '{' '.join(pieces)}' apart: give {''.join(pieces)}"
    return f"'{word}' has no value: give {word}=VALUE (`fedcomp --help` lists the options)"


def together(arguments: Iterable[str]) -> str | None:
    """The error message for `rounds=5 seed=1` in one text, which is one option's value; None: there is none."""
    for word in arguments:
        first, *others = NEXT.split(word)
        key, _, value = first.partition("=")
        option = key.lstrip("~+")
        if others and option not in FREE and ("." not in option or PLAIN.fullmatch(value)):
            each = ", ".join(repr(one.strip("'")) for one in (first, *others))
            return f"{word!r} is {len(others) + 1} options in one text: give each by itself, {each}"
    return None


def no_integer(name: str, value: str) -> str:
    """The error message for an option of the run that must be a whole number."""
    found = RANGE.fullmatch(value)
    hint = f"; of a grid with all of them: -m '{name}=range({found[1]},{int(found[2]) + 1})'" if found else ""
    return f"{name}={value} must be a whole number{hint}"


def no_choice(arguments: Iterable[str]) -> str | None:
    """The error message for `participation=0.1`, a number where a choice is named; None: there is none."""
    for word in arguments:
        group, _, value = word.partition("=")
        if group in PARTS and re.fullmatch(r"(?=.*\d)[-+.,\deE]+|[-+]?(nan|inf)|true|false", value, re.I):
            found = choices(FOLDERS.get(group, group))
            numbers = [(one, key) for one, options in found.items() for key, it in options.items() if is_number(it)]
            hint = "; a number is given to an option, as {0}={1} {0}.{2}={3}".format(group, *numbers[0], value)
            return f"{word}: {group} is chosen by name (there are: {', '.join(found)}){hint if numbers else ''}"
    return None


def _has(config: Mapping[str, Any], part: str, option: str) -> bool:
    node = config.get(part) if part else config
    return isinstance(node, Mapping) and option in node


def _choices(group: str, folders: Sequence[Path]) -> dict[str, Mapping[str, Any]]:
    """{choice: its options} of a group in all folders."""
    return {name: one for folder in folders for name, one in choices(FOLDERS.get(group, group), folder).items()}
