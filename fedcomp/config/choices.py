"""Refuses overrides that choose no YAML of a group: paths, numbers, and parts that are taken away."""

from __future__ import annotations

from collections.abc import Iterable

from fedcomp.config.errors.slips import no_choice
from fedcomp.config.schema import PARTS

GROUPS = frozenset(PARTS) | {"experiment"}


def check_choices(words: Iterable[str]) -> None:
    """Raise ValueError for `compressor=../client/sgd`, `~compressor` and `participation=0.1`."""
    words = list(words)
    slip = no_choice(words)
    if slip is not None:
        raise ValueError(slip)
    for word in words:
        key, _, value = word.partition("=")
        group = key.lstrip("~+").partition("@")[0].partition("/")[0]
        if group not in GROUPS:
            continue
        if key.startswith("~"):
            raise ValueError(f"{word}: a run needs its {group}: choose another one with {group}=<name>")
        if ".." in value.split("/") or value.startswith("/"):
            raise ValueError(f"{word}: {group} is chosen by the name of a YAML in a folder {group}/, not by a path")
