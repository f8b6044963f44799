"""Checks of options: numbers, choices, one-line names, and hints for a name that does not exist."""

import difflib
import math
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeGuard

CONTROL_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")
"""Unicode categories of control characters, surrogates, and separators of lines and paragraphs."""
MAX_LISTED = 20
"""Number of names that an error message lists; it counts the others."""


class OptionError(ValueError):
    """A wrong option, whose name stands first: the bare one, of a part that does not know in which group it is."""


@contextmanager
def options_of(group: str) -> Iterator[None]:
    """Within it, parts are made that say an option's bare name; the error has the group before it: `downlink.k=0`."""
    try:
        yield
    except OptionError as error:
        raise ValueError(f"{group}.{error}") from error


def check_interval(
    name: str, value: object, interval: str, meaning: str = "", *, words: tuple[object, ...] = (), or_null: bool = False
) -> None:
    """Refuse an option outside an interval.

    Args:
        interval: as in mathematics, "(0, 1]" or "[0, inf)": a bracket includes its end, a parenthesis does not.
        meaning: what the option is; the error message ends with it.
        words: are allowed too. or_null: None is.
    Raises:
        ValueError: the value is no number, or outside.
    """
    if (value is None and or_null) or value in words:
        return
    low, high = map(float, interval[1:-1].split(","))
    inside = is_number(value) and low <= value <= high
    if not inside or (value == low and interval[0] == "(") or (value == high and interval[-1] == ")"):
        number = {"[-inf, inf]": "a number", "(0, inf)": "a positive number", "[0, inf)": "a number, 0 or more"}
        allowed = number.get(interval, f"a number in {interval}")
        if words:
            allowed = f"{', '.join(map(str, words))}, or {allowed}"
        raise OptionError(_refusal(name, value, allowed, meaning, or_null))


def check_count(
    name: str, value: object, least: float = 1, meaning: str = "", *, most: float = math.inf, or_null: bool = False
) -> None:
    """Raise ValueError unless the option is a whole number from `least` to `most`; the rest as in `check_interval`."""
    if not (value is None and or_null) and (not is_whole(value) or not least <= value <= most):
        bounds = f", {least} or more" if most == math.inf else f" from {least} to {most}"
        allowed = "a whole number" + (bounds if least > -math.inf else "")
        raise OptionError(_refusal(name, value, allowed, meaning, or_null))


def check_choice(
    name: str, value: object, allowed: tuple[object, ...], meaning: str = "", *, or_null: bool = False
) -> None:
    """Raise ValueError unless the option is one of `allowed`; the rest as in `check_interval`."""
    if not (value is None and or_null) and (value not in allowed or isinstance(value, bool)):
        raise OptionError(_refusal(name, value, f"one of {', '.join(map(str, allowed))}", meaning, or_null))


def _refusal(name: str, value: object, allowed: str, meaning: str, or_null: bool) -> str:
    null = ", or null" if or_null else ""
    return f"{name}={as_typed(value)} must be {allowed}{null}" + (f": {meaning}" if meaning else "")


def as_typed(value: object) -> str:
    """A value as on the command line: null, true, 0.03."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_seed(name: str, value: object) -> None:
    """Raise ValueError unless the seed is a whole number, 0 or more, and below 2^63, as records hold it."""
    check_count(name, value, least=0)
    if is_whole(value) and value >= 2**63:
        raise OptionError(f"{name}={value} must be a whole number below 2^63")


def is_number(value: object) -> TypeGuard[float]:
    """Whether the value is an int or a float; a bool is not a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether the value is an int; a bool is not a number."""
    return isinstance(value, int) and not isinstance(value, bool)


def reads_as_number(text: str) -> bool:
    """Whether `float` reads the text."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_one_line(what: str, text: str) -> None:
    """Refuse text with a newline, a tab or another control character: names become folders, headings and table cells.

    Args:
        what: names the text in the error message, such as "dataset name".
    Raises:
        ValueError: naming the first such character.
    """
    for character in text:
        if unicodedata.category(character) in CONTROL_CATEGORIES:
            raise ValueError(
                f"{what} {text!r} contains {character!r}, but must be one line of text without control characters"
            )


def check_folder_name(what: str, text: str) -> None:
    """Raise ValueError unless the text can name a folder or a file: one line, no slash, no dot at its start."""
    check_one_line(what, text)
    if not text.strip() or "/" in text or text.startswith("."):
        raise ValueError(f"{what}={text!r} must be a folder's name: no slash, no dot at its start")


def suggest(given: str, names: Iterable[str]) -> str:
    """End of an error message about an unknown name: `; did you mean 'price'? (there are: price, age, bmi)`.

    Args:
        given: the unknown name. names: the known names, listed from the most similar to the least.
    """
    known = by_similarity(given, names)
    if not known:
        return ""
    more = f" and {len(known) - MAX_LISTED} more" if len(known) > MAX_LISTED else ""
    return f"{did_you_mean(given, known[:1])} (there are: {', '.join(known[:MAX_LISTED])}{more})"


def did_you_mean(given: str, names: Iterable[str]) -> str:
    """`; did you mean 'price'?` if an unknown name is close to one of `names` or to its last part; else ""."""
    known = list(names)
    lower = {name.lower().rpartition("/")[2]: name for name in known} | {name.lower(): name for name in known}
    close = difflib.get_close_matches(given.lower(), lower, n=1)
    return f"; did you mean '{lower[close[0]]}'?" if close else ""


def by_similarity(given: str, names: Iterable[str]) -> list[str]:
    """The names without repetition, the most similar to `given` first; ties keep their order."""

    def similarity(name: str) -> float:
        return difflib.SequenceMatcher(None, given.lower(), name.lower()).ratio()

    return sorted(dict.fromkeys(names), key=similarity, reverse=True)
