"""Runs that differ only by their seed are one group; groups on the same data, model and clients share a setting."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedcomp.records.grid import listed_runs
from fedcomp.records.reader import RecordedRun, RunFiles, find_runs
from fedcomp.records.run_folder import IDENTITY, VERSION, WITHOUT_EFFECT
from fedcomp.reporting.labels import Flat, flatten, in_order, within
from fedcomp.reporting.names import Setting, names, natural, setting_text

NOT_RESULTS = WITHOUT_EFFECT | {"device", "chunk_size", "wire", "record_traffic", "codec_error"}
"""Config keys, folders included, that say where, when or how visibly a run happens, not what it computes."""


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


def group(runs: Iterable[RecordedRun]) -> list[RunGroup]:
    """The finished runs by config, in the order of their settings, then labels.

    A run-level config key `label` names its group; others have their `names`. Unfinished runs are left out,
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
    named = names(shown, [_given(own) for own in members])
    groups = [RunGroup(label, own, place, flat) for (label, place), own, flat in zip(named, members, shown)]
    return sorted(groups, key=lambda one: ([natural(value) for _, value in one.setting], natural(one.label)))


def result_options(config: Mapping[str, Any]) -> Flat:
    """A config as dotted keys, without its seed, nulls and what changes no result: the same for all seeds."""
    return {
        key: value
        for key, value in flatten(config).items()
        if value is not None and not within(key, NOT_RESULTS) and key.split(".")[-1] != VERSION
    }


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


def arranged(groups: Sequence[RunGroup], order: Sequence[str], rename: Mapping[str, str] | None) -> list[RunGroup]:
    """The groups with other names, in each setting those of `order` first. Raises ValueError: see `in_order`."""
    renamed = in_order(list(dict.fromkeys(one.label for one in groups)), order, rename)
    places = list(renamed)
    return [
        replace(one, label=renamed[one.label])
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
        below = (number for number, root in enumerate(resolved) if any(root in [own, *own.parents] for own in folders))
        return next(below, len(roots)), min(listed.get(own, math.inf) for own in folders)

    return [one for own in by_setting(groups).values() for one in sorted(own, key=place)]


def regroup(groups: Sequence[RunGroup], without: Iterable[str]) -> list[RunGroup]:
    """The same groups, named and placed as if these config keys, folders included, were the same in all of them."""
    gone = set(without)
    flats = [{key: value for key, value in one.flat.items() if not within(key, gone)} for one in groups]
    named = names(flats, [_given(one.runs) for one in groups], unique=False)
    return [replace(one, label=label, setting=setting) for one, (label, setting) in zip(groups, named)]


def _given(runs: Sequence[RecordedRun]) -> str:
    """The label that the runs' config gives them, if any."""
    return next((str(run.config["label"]) for run in runs if run.config.get("label")), "")
