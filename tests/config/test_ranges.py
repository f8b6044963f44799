"""What the comment of an option in its YAML excludes is refused, in a line that begins with the option and its value.

Numbers at or beyond the ends of a range ("above 0, at most 1"), words in place of numbers, and other words than those
that a comment names. What two options do to each other is tested beside their part.
"""

import functools
import inspect
import math
import re
from collections.abc import Iterator
from pkgutil import resolve_name
from typing import Any

import pytest

from fedcomp.compressor import Compressor
from fedcomp.config.comments import read
from fedcomp.core.choices import content, lineage, options
from fedcomp.core.folders import CONF
from tests.config.test_configs import CHOICES
from tests.looped import looped

GROUPS = ("algorithm", "client", "compressor", "objective", "participation", "partition", "server")
NOT_ALONE = {"capacity", "path", "weights", "value", "feedback", "predictor", "estimator"}
"""Options that are checked once the model or another option is known, that are a file, or a part of their own."""
NUMBER = r"([0-9][\d.e-]*)"
OUTSIDE = {
    rf"above {NUMBER}": 0.0,
    rf"{NUMBER} or more|{NUMBER} to \d|in \[{NUMBER},": -1.0,
    rf"below {NUMBER}": 0.0,
    rf"at most {NUMBER}|\d to {NUMBER}|in \[\d, {NUMBER}\]": 1.0,
}
"""{an end of a range: what is to be added to it so that it lies outside}."""


def _excluded(comment: str, default: Any) -> Iterator[Any]:
    own, is_range = comment.partition(";")[0], False
    for end, beyond in OUTSIDE.items():
        for found in re.finditer(end, own):
            is_range, value = True, float(next(filter(None, found.groups()))) + beyond
            yield int(value) if value == int(value) else value
    if is_range:
        yield from (math.nan, "abc")
    elif isinstance(default, str):
        yield "nonsense"


CASES = [
    (group, choice, option, value)
    for group, choice in CHOICES
    if group in GROUPS
    for option, default in options(CONF / group / f"{choice}.yaml").items()
    if option not in NOT_ALONE and not option.startswith("_") and not isinstance(default, bool)
    for value in _excluded(read(CONF / group / f"{choice}.yaml").options.get(option, ""), default)
]


@functools.cache
def _part(group: str, choice: str) -> Any:
    """A part with the options of its YAML; a compressor of a codec."""
    made = _made(group, choice, {})
    return Compressor.of(made) if group == "compressor" else made


def _made(group: str, choice: str, changes: dict[str, Any]) -> Any:
    path = CONF / group / f"{choice}.yaml"
    given = {name: value for name, value in options(path).items() if name != "_partial_"} | changes
    make = resolve_name(given.pop("_target_"))
    wanted = inspect.signature(make).parameters
    chosen = {"client": "sgd", "server": "sgd", "compressor": "dense", "downlink": "dense"}
    for entry in (
        pair for file in lineage(path) for pair in content(file).get("defaults", ()) if isinstance(pair, dict)
    ):
        chosen |= {str(key).rpartition(".")[2]: choice for key, choice in entry.items()}
    parts = {"client": "client", "server": "server", "uplink": "compressor", "downlink": "downlink"}
    used = {
        name: _part("compressor" if name in ("uplink", "downlink") else key, chosen[key])
        for name, key in parts.items()
        if group == "algorithm" and name in wanted
    }
    made = make(**used, **{name: value for name, value in given.items() if name in wanted})
    if group == "participation":
        made.check(20)
    return made


@looped("group, choice, option, value", CASES)
def test_what_a_comment_excludes_is_refused(group: str, choice: str, option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^({group}\.)?{option}(={re.escape(str(value))})? "):
        _made(group, choice, {option: value})


def test_there_are_ranges_of_every_kind() -> None:
    assert len(CASES) > 500
    assert {group for group, *_ in CASES} == set(GROUPS)
