"""Runs that differ only by their seed are one group; groups on the same data, model and clients share a setting."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedcomp.core.folders import part_name
from fedcomp.core.validate import reads_as_number
from fedcomp.records.grid import listed_runs
from fedcomp.records.reader import RecordedRun, RunFiles, find_runs
from fedcomp.records.run_folder import IDENTITY, VERSION, WITHOUT_EFFECT
from fedcomp.reporting.labels import Flat, distinct, flatten, in_order, labels, short_keys, show_value, within
from fedcomp.reporting.presets import with_preset

NOT_RESULTS = WITHOUT_EFFECT | {"device", "chunk_size", "wire", "record_traffic", "codec_error"}
"""Config keys, folders included, that say where, when or how visibly a run happens, not what it computes."""

SETTINGS = ("dataset", "model", "partition", "num_clients", "case", "network")
"""Config folders and keys that say what methods are compared on; everything else is the method."""

Setting = tuple[tuple[str, str], ...]
"""What methods are compared on, where that varies: (("dataset", "mnist"), ("partition", "dirichlet alpha=0.1"))."""


@dataclass(frozen=True)
class RunGroup:
    """Finished runs of one config.

    Attributes:
        label: what a table or a legend calls its method; two groups of one setting never have the same.
        runs: one a seed, by seed.
        setting: what it is compared on; empty where all groups share it, or each has its own.
        flat: the config, without seed and what changes no result.
    """

    label: str
    runs: tuple[RecordedRun, ...]
    setting: Setting = ()
    flat: Flat = field(default_factory=dict)

    @property
    def place(self) -> str:
        """The setting in words: `mnist · dirichlet alpha=0.1`."""
        return setting_text(self.setting)


def setting_text(setting: Setting) -> str:
    """A setting in words."""
    words = {"num_clients": "1 client" if ("num_clients", "1") in setting else "{} clients", "network": "network {}"}
    return " · ".join(words.get(key, "{}").format(value) for key, value in setting if value)


def group(runs: Iterable[RecordedRun]) -> list[RunGroup]:
    """The finished runs by config, in the order of their settings, then labels.

    A run-level config key `label` names its group; others are named by `labels`. Unfinished runs are left out,
    a mean over runs of different lengths would mean nothing: list them with `left_out`. Seeds in the folder of one
    config hash are one group, also where later versions of fedcomp have options that its first runs did not record.
    """
    by_config: dict[str, dict[object, RecordedRun]] = {}
    flats: dict[str, Flat] = {}
    of_folder: dict[Path, str] = {}
    for run in runs:
        if run.finished:
            flat = result_options(run.config)
            key = json.dumps(flat, sort_keys=True, default=str)
            if (run.folder.parent / IDENTITY).is_file():
                key = of_folder.setdefault(run.folder.parent, key)
            flats[key] = flat
            seeds = by_config.setdefault(key, {})
            seeds.setdefault(run.seed if run.seed is not None else run.folder, run)
    members = [
        tuple(sorted(seeds.values(), key=lambda run: (run.seed or 0, str(run.folder)))) for seeds in by_config.values()
    ]
    shown = [used(flat, own[0].files) for flat, own in zip(flats.values(), members, strict=True)]
    places = settings(shown)
    names = group_labels(shown, [_given(own) for own in members], places)
    groups = [RunGroup(*parts) for parts in zip(names, members, places, shown)]
    return sorted(groups, key=lambda one: ([natural(value) for _, value in one.setting], natural(one.label)))


def result_options(config: Mapping[str, Any]) -> Flat:
    """A config as dotted keys, without its seed, nulls and what changes no result: the same for all seeds."""
    return {key: value for key, value in flatten(config).items() if value is not None and _counts(key)}


def used(flat: Flat, files: RunFiles) -> Flat:
    """The options of `result_options` without those of parts that the run's algorithm does not use."""
    unused = set(files.unused())
    return {key: value for key, value in flat.items() if not within(key, unused)}


def by_setting(groups: Sequence[RunGroup]) -> dict[Setting, list[RunGroup]]:
    """The groups of each setting, in order."""
    out: dict[Setting, list[RunGroup]] = {}
    for one in groups:
        out.setdefault(one.setting, []).append(one)
    return out


def arranged(
    groups: Sequence[RunGroup], order: Sequence[str] = (), rename: Mapping[str, str] | None = None
) -> list[RunGroup]:
    """The groups with other names, in each setting those of `order` first. Raises ValueError: see `in_order`."""
    names = in_order(list(dict.fromkeys(one.label for one in groups)), order, rename)
    places = list(names)
    return [
        replace(one, label=names[one.label])
        for own in by_setting(groups).values()
        for one in sorted(own, key=lambda one: places.index(one.label))
    ]


def in_command_order(groups: Sequence[RunGroup], paths: Iterable[str | Path]) -> list[RunGroup]:
    """In each setting in the order of `paths`, and of the commands of grids below them; others as they are.

    Args:
        paths: that the runs were read from.
    """
    roots = [Path(path) for path in paths]
    listed = {folder: number for number, (folder, *_) in enumerate(listed_runs(find_runs(roots).grids))}
    resolved = [root.resolve() for root in roots]

    def place(one: RunGroup) -> tuple[int, float]:
        folders = [run.folder.resolve() for run in one.runs]
        within = (number for number, root in enumerate(resolved) if any(root in [own, *own.parents] for own in folders))
        return next(within, len(roots)), min(listed.get(own, math.inf) for own in folders)

    return [one for own in by_setting(groups).values() for one in sorted(own, key=place)]


def regroup(groups: Sequence[RunGroup], without: Iterable[str]) -> list[RunGroup]:
    """The same groups, named and placed as if these config keys, folders included, were the same in all of them."""
    gone = set(without)
    flats = [{key: value for key, value in one.flat.items() if not within(key, gone)} for one in groups]
    places = settings(flats)
    names = group_labels(flats, [_given(one.runs) for one in groups], places, unique=False)
    return [replace(one, label=label, setting=setting) for one, label, setting in zip(groups, names, places)]


def settings(flats: Sequence[Flat]) -> list[Setting]:
    """Of each config, its value of every one of SETTINGS that varies; all empty where no two configs share them."""
    named = [with_preset(flat) for flat in flats]
    columns = {key: _column(named, key) for key in SETTINGS}
    varying = {key: column for key, column in columns.items() if len(set(column)) > 1}
    found = [tuple((key, column[index]) for key, column in varying.items()) for index in range(len(flats))]
    return found if len(set(found)) < len(found) else [()] * len(found)


def group_labels(
    flats: Sequence[Flat], given: Sequence[str], places: Sequence[Setting], unique: bool = True
) -> list[str]:
    """Of each config, the label it was given, else one made of what differs within a setting.

    Several configs of a setting with the same given label get what differs among them behind it: `ours lr=0.1`.
    """
    split = {key for setting in places for key, _ in setting}
    bare = [{key: value for key, value in with_preset(flat).items() if not within(key, split)} for flat in flats]
    names = [label or made for label, made in zip(given, labels(bare, places))]
    for label in {label for label in given if label}:
        own = [index for index in range(len(flats)) if given[index] == label]
        if len({json.dumps(bare[index], sort_keys=True, default=str) for index in own}) > 1:
            made = labels([bare[index] for index in own], [places[index] for index in own])
            crowded = {place for place in places if sum(places[index] == place for index in own) > 1}
            for index, behind in zip(own, made):
                if places[index] in crowded:
                    names[index] = f"{label} {behind}"
    if unique:
        for setting in set(places):
            own = [index for index in range(len(flats)) if places[index] == setting]
            for index, numbered in zip(own, distinct([names[index] for index in own])):
                names[index] = numbered
    return names


def _given(runs: Sequence[RecordedRun]) -> str:
    """The label that the runs' config gives them, if any."""
    return next((str(run.config["label"]) for run in runs if run.config.get("label")), "")


def _column(flats: Sequence[Flat], folder: str) -> list[str]:
    """Of each config, the folder's part by name and, where others have the same part, the settings that differ."""
    inside = [{key: value for key, value in flat.items() if within(key, {folder})} for flat in flats]
    target = f"{folder}._target_"
    parts = [part_name(own[target]) if target in own else "" for own in inside]
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


def _counts(key: str) -> bool:
    """Whether this dotted key changes what a run computes."""
    return not within(key, NOT_RESULTS) and key.split(".")[-1] != VERSION


def natural(text: str) -> list[tuple[int, float, str]]:
    """Sorts `fraction=0.1` behind `fraction=0.03`, and 20 behind 5."""
    words = text.replace("=", " ").split()
    return [(0, float(word), "") if reads_as_number(word) else (1, 0.0, word) for word in words]
