"""Options of a grid whose parts are swept: they belong to each choice of the sweep, and not to the default choice.

Hydra composes a grid's common config from the words that have one value, before it composes the runs. So in
`-m network=lte,5g network.rtt_s=0.1` it would look for `rtt_s` among the options of the default network. An option of a
part is therefore left to the runs, as a sweep over its one value, and is checked against each run's own choice.
"""

from __future__ import annotations

from collections.abc import Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override
from hydra.errors import HydraException

from fedcomp.config.schema import PARTS

OF_THE_GRID = ("launcher", "sweeper", "objective")
"""Parts that the grid itself needs, before there are runs."""


def leave_to_the_runs(words: Sequence[str]) -> list[str]:
    """The overrides of a grid, with the options of parts as sweeps over one value if a config group is swept."""
    parser = OverridesParser.create()
    try:
        overrides = [parser.parse_override(word) for word in words]
    except HydraException:
        return list(words)  # Hydra's own error says what is wrong
    if not any(one.is_sweep_override() and _is_group(one) for one in overrides):
        return list(words)
    return [_left(word, one) if _is_option(one) else word for word, one in zip(words, overrides, strict=True)]


def only_value(override: Override) -> str | None:
    """The value of an override that has one, as it was given, also of a sweep over it; None: it has several."""
    value = override.value()
    if not override.is_sweep_override():
        return override.get_value_element_as_str()
    if not isinstance(value, ChoiceSweep) or len(value.list) != 1:
        return None
    return next(iter(override.sweep_string_iterator()))


def _is_group(override: Override) -> bool:
    """Whether the key names a group of configs: `compressor`, `compressor@downlink`, `experiment/x/method`."""
    group = override.key_or_group.partition("@")[0]
    return group in PARTS or group.partition("/")[0] == "experiment"


def _is_option(override: Override) -> bool:
    """Whether it gives one value to an option of a part that the grid itself does not need."""
    part, dot, _ = override.key_or_group.partition(".")
    return bool(dot) and part in PARTS and part not in OF_THE_GRID and not override.is_sweep_override()


def _left(word: str, override: Override) -> str:
    if override.is_delete():
        return word
    key, _, value = word.partition("=")
    left = f"{key}=choice({value})"
    try:
        return left if OverridesParser.create().parse_override(left).is_sweep_override() else word
    except HydraException:  # a value that no list may hold
        return word
