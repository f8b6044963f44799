"""What the runs of a config are called: the setting on which methods are compared, and the name of the method."""

import json
from collections import Counter
from collections.abc import Sequence

from fedcomp.core.validate import reads_as_number
from fedcomp.reporting.labels import Flat, distinct, labels, part_names, short_keys, show_value, within
from fedcomp.reporting.presets import with_preset

SETTINGS = ("dataset", "model", "partition", "num_clients", "case", "network")
"""Config folders and keys that say what methods are compared on; everything else is the method."""

Setting = tuple[tuple[str, str], ...]
"""What methods are compared on, where that varies: (("dataset", "mnist"), ("partition", "dirichlet alpha=0.1"))."""


def names(flats: Sequence[Flat], given: Sequence[str], unique: bool = True) -> list[tuple[str, Setting]]:
    """(label, setting) of each config: the label it was given, else one made of what differs within a setting.

    Several configs of a setting with the same given label get what differs among them behind it: `ours lr=0.1`.

    Args:
        given: the label of each config; "": none.
        unique: number equal labels of a setting.
    """
    named = [with_preset(flat) for flat in flats]
    places = _settings(named)
    split = {key for setting in places for key, _ in setting}
    bare = [{key: value for key, value in flat.items() if not within(key, split)} for flat in named]
    found = [label or made for label, made in zip(given, labels(bare, places))]
    for label in {label for label in given if label}:
        own = [index for index in range(len(flats)) if given[index] == label]
        if len({json.dumps(bare[index], sort_keys=True, default=str) for index in own}) > 1:
            made = labels([bare[index] for index in own], [places[index] for index in own])
            times = Counter(places[index] for index in own)
            for index, behind in zip(own, made):
                if times[places[index]] > 1:
                    found[index] = f"{label} {behind}"
    return list(zip(distinct(found, places) if unique else found, places))


def setting_text(setting: Setting) -> str:
    """A setting in words: `mnist · dirichlet alpha=0.1`."""
    words = {"num_clients": "1 client" if ("num_clients", "1") in setting else "{} clients", "network": "network {}"}
    return " · ".join(words.get(key, "{}").format(value) for key, value in setting if value)


def natural(text: str) -> list[tuple[int, float, str]]:
    """Sorts `fraction=0.1` behind `fraction=0.03`, and 20 behind 5."""
    words = text.replace("=", " ").split()
    return [(0, float(word), "") if reads_as_number(word) else (1, 0.0, word) for word in words]


def _settings(flats: Sequence[Flat]) -> list[Setting]:
    """Of each config, its value of every one of SETTINGS that varies; all empty where no two configs share them."""
    columns = {key: _column(flats, key) for key in SETTINGS}
    varying = {key: column for key, column in columns.items() if len(set(column)) > 1}
    found = [tuple((key, column[index]) for key, column in varying.items()) for index in range(len(flats))]
    return found if len(set(found)) < len(found) else [()] * len(found)


def _column(flats: Sequence[Flat], folder: str) -> list[str]:
    """Of each config, the folder's part by name and, where others have the same part, the settings that differ."""
    inside = [{key: value for key, value in flat.items() if within(key, {folder})} for flat in flats]
    target = f"{folder}._target_"
    named = iter(part_names([own[target] for own in inside if target in own]))
    parts = [next(named) if target in own else "" for own in inside]
    varying = {}
    for part in set(parts):
        same = [own for own, its in zip(inside, parts) if its == part]
        keys = {key for own in same for key in own if key != target}
        varying[part] = {key for key in keys if any(own.get(key) != same[0].get(key) for own in same)}
    out = []
    for own, part in zip(inside, parts):
        differ = [key for key in own if key in varying[part]]
        if differ == [folder]:  # a plain key, as num_clients
            out.append(show_value(own[folder]))
            continue
        short = short_keys(differ)
        out.append(" ".join([part, *(f"{short[key]}={show_value(own[key])}" for key in differ)]).strip())
    return out
