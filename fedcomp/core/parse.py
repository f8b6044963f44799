"""JSON and YAML that others may have written: what is nested too deeply, or grows by aliases, is a ValueError."""

import json
from typing import Any

MOST_NESTED = 100
"""Levels of a YAML file; a run's config has about five."""
SHORT = 8_000
"""Bytes in which nothing can be nested so deeply that a C parser runs out of stack."""


def parse_json(content: bytes | str) -> Any:
    """As `json.loads`. Raises ValueError: it is no JSON, or nested too deeply."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def parse_yaml(content: bytes) -> Any:
    """Plain values, quickly. Raises ValueError: it is no YAML, has aliases, or is nested too deeply."""
    import yaml

    from fedcomp.core.choices import FAST_LOADER

    try:
        if len(content) > SHORT or b"*" in content:
            _check_events(content)
        found = yaml.load(content, Loader=FAST_LOADER)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    _check_depth(found)
    return found


def _check_depth(value: Any, depth: int = 0) -> None:
    if depth > MOST_NESTED:
        raise ValueError("it is nested too deeply")
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_depth(one, depth + 1)


def _check_events(content: bytes) -> None:
    import yaml

    from fedcomp.core.choices import FAST_LOADER

    depth = 0
    for event in yaml.parse(content, Loader=FAST_LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"it has an alias, *{event.anchor}")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_NESTED:
            raise ValueError("it is nested too deeply")
