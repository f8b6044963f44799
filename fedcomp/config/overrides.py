"""What fedcomp makes of overrides before Hydra reads them: refuses some, completes some, leaves some to a grid's runs.

`label=日本語` and `label=k=1` can only mean their own text, and get quotes. `model.options.width=32` names an argument
of the user's class, which no config of fedcomp can list, and gets ++. What Hydra can read is left unchanged.

Hydra composes a grid's common config from the words that have one value, before it composes the runs. So in
`-m network=lte,5g network.rtt_s=0.1` it would look for `rtt_s` among the options of the default network. Where a config
group is swept, an option of a part is therefore left to the runs, as a sweep over its one value, and is checked against
each run's own choice.
"""

import re
import shlex
from collections.abc import Iterable, Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, Override
from hydra.errors import HydraException

from fedcomp.config.errors.slips import no_choice, together
from fedcomp.config.schema import PARTS

TOKEN = re.compile(r"""'(?:\\.|[^'\\])*'(?=[,\]]|$) | "(?:\\.|[^"\\])*"(?=[,\]]|$) | [,\[\]] | [^,\[\]]+""", re.X)
"""The tokens of a value: quoted text; commas and brackets, which separate entries of lists and grids; other text."""
UNQUOTED = re.compile(r"[\w/\-\\+.$%*@?|:{}() ]*", re.ASCII)
"""Text that Hydra parses without quotes, or that has a meaning in its grammar."""
SYNTAX = re.compile(r"[$(){}]")
"""Characters of interpolations, functions and mappings: text with one of these gets no quotes."""

SURPLUS_COMMA = re.compile(r",+(?=[,\]]|$)|(?<=[=\[]),+")
"""Commas beside which there is no entry."""
DOWNLINK = re.compile(r"downlink=(?!null\b)[a-z][\w/]*(,[a-z][\w/]*)*")
"""Choices of the downlink's compressor, which are given as those of a part of the same name are."""
OF_ANY_NAME = ("model.options.",)
"""Options below these have names of the user's own."""
GROUPS = frozenset(PARTS) | {"experiment"}
REMOVABLE = ("vars", "hydra")
"""What of a config a run does without."""
OF_THE_GRID = ("launcher", "sweeper", "objective")
"""Parts that the grid itself needs, before there are runs."""


def check_choices(words: Iterable[str]) -> None:
    """Raise ValueError for `compressor=../client/sgd`, `compressor=null`, `~compressor` and `participation=0.1`.

    And for two options in one text, `rounds=5 seed=1`.
    """
    words = list(words)
    slip = together(words) or no_choice(words)
    if slip is not None:
        raise ValueError(slip)
    for word in words:
        key, _, value = word.partition("=")
        group = key.lstrip("~+").partition("@")[0].partition("/")[0]
        if group not in GROUPS:
            if key.startswith("~") and group.partition(".")[0] not in REMOVABLE:
                raise ValueError(f"{word}: a run needs all its options: give another value with {key[1:]}=<value>")
            continue
        if key.startswith("~") or "null" in value.split(","):
            name = key.lstrip("~+")
            needs = f"a run needs its {name.rpartition('@')[2]}: choose another one with {name}=<name>"
            raise ValueError(f"{word}: {'a run has no experiment without it' if name == 'experiment' else needs}")
        if ".." in value.split("/") or value.startswith("/"):
            raise ValueError(f"{word}: {group} is chosen by the name of a YAML in a folder {group}/, not by a path")


def quote(override: str) -> str:
    """`label=日本語` -> `label='日本語'`; the override itself if Hydra can parse it, or if quotes do not help.

    `model.options.width=32` -> `++model.options.width=32`, which adds the name or replaces its value, and
    `downlink=sign` -> `compressor@downlink=sign`.
    """
    if DOWNLINK.fullmatch(override):
        return f"compressor@{override}"
    if override.startswith(OF_ANY_NAME):
        override = f"++{override}"
    key, equals, value = override.partition("=")
    if not equals or _parses(override):
        return override
    parts = [_quoted(part) for part in TOKEN.findall(value)]
    candidate = f"{key}={''.join(parts)}"
    return candidate if "".join(TOKEN.findall(value)) == value and _parses(candidate) else override


def quoting_error(override: str) -> str | None:
    """The error message for an override that Hydra cannot parse, with the missing quotes; None if it can."""
    key, equals, value = override.partition("=")
    if not equals or _parses(override):
        return None
    fewer = SURPLUS_COMMA.sub("", override)
    if fewer not in (override, f"{key}=") and _parses(fewer):
        return f"'{override}' has a comma too many: give {fewer}"
    quoted = quote_text(key, value)
    if quoted is None:
        return f"'{override}' cannot be read: '{key}' is no option's name"
    return f"'{override}' cannot be read: if its value is plain text, quote it, also for the shell: {quoted}"


def quote_text(key: str, value: str) -> str | None:
    """The override as it is typed in a shell, with its value quoted as one text; None if the key is invalid."""
    quoted = _in_quotes(value) if set(value) & set('"\\') else f'"{value}"'
    candidate = f"{key}={quoted}"
    return shlex.quote(candidate) if _parses(candidate) else None


def _quoted(part: str) -> str:
    if part[0] in "'\",[]" or UNQUOTED.fullmatch(part) or SYNTAX.search(part):
        return part
    bare = part.strip()
    return part.replace(bare, _in_quotes(bare))


def _in_quotes(text: str) -> str:
    """The text in Hydra's quotes, with a backslash before each quote and each backslash at the end."""
    body = re.sub(r"(\\*)'", lambda match: match[1] * 2 + r"\'", text)
    tail = re.search(r"\\*$", body)
    return f"'{body}{tail[0] if tail else ''}'"


def _parsed(word: str) -> Override | None:
    """An override as Hydra reads it; None if it cannot."""
    try:
        return OverridesParser.create().parse_override(word)
    except HydraException:
        return None


def _parses(word: str) -> bool:
    return _parsed(word) is not None


def leave_to_the_runs(words: Sequence[str]) -> list[str]:
    """The overrides of a grid, with the options of parts as sweeps over one value if a config group is swept."""
    overrides = [one for word in words if (one := _parsed(word)) is not None]
    if len(overrides) < len(words) or not any(one.is_sweep_override() and _is_group(one) for one in overrides):
        return list(words)  # of a word that Hydra cannot read its own error says what is wrong
    return [_left(word, one) if _is_option(one) else word for word, one in zip(words, overrides, strict=True)]


def only_value(override: Override) -> str | None:
    """The value of an override that has one, as it was given, also of a sweep over it; None: it has several."""
    value = override.value()
    if not override.is_sweep_override():
        return override.get_value_element_as_str()
    if not isinstance(value, ChoiceSweep) or len(value.list) != 1:
        return None
    return next(iter(override.sweep_string_iterator()))


def has_several_values(word: str) -> bool:
    """Whether the override is for a grid: `seed=0,1`, `seed='range(3)'`; False if Hydra cannot parse it."""
    override = _parsed(word)
    return override is not None and override.is_sweep_override()


def each_value(word: str) -> list[str]:
    """The override with one value each: `seed=0,1` -> `seed=0`, `seed=1`; unchanged if it lists no values."""
    override = _parsed(quote(word))
    if override is None or not override.is_discrete_sweep() or isinstance(override.value(), Glob):
        return [word]
    return [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()] or [word]


def _is_group(override: Override) -> bool:
    """Whether the key names a group of configs: `compressor`, `compressor@downlink`, `experiment/x/method`."""
    return override.key_or_group.partition("@")[0].partition("/")[0] in GROUPS


def _is_option(override: Override) -> bool:
    """Whether it gives one value to an option of a part that the grid itself does not need."""
    part, dot, _ = override.key_or_group.partition(".")
    return bool(dot) and part in PARTS and part not in OF_THE_GRID and not override.is_sweep_override()


def _left(word: str, override: Override) -> str:
    if override.is_delete():
        return word
    key, _, value = word.partition("=")
    left = f"{key}=choice({value})"
    return left if has_several_values(left) else word  # a value that no list may hold
