"""Runs that differ only by their seed are one group, named by what sets it apart from the other groups."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedcomp.report.runs import Run
from fedcomp.run_folder import WITHOUT_EFFECT

NOT_RESULTS = WITHOUT_EFFECT | {"device", "chunk_size", "wire"}
"""Config keys, folders included, that say where, when or how visibly a run happens, not what it computes."""

ARROWS = {"compressor": "↑", "downlink": "↓"}
"""The two config folders that hold compressors, and the way their messages go."""

Flat = dict[str, Any]
"""A config as {dotted key: scalar or list}."""


@dataclass(frozen=True)
class Group:
    """Finished runs of one config.

    Attributes:
        label: what a table or a legend calls it.
        runs: one a seed, by seed.
    """

    label: str
    runs: tuple[Run, ...]


def group(runs: Iterable[Run]) -> list[Group]:
    """The finished runs by config, in the order of their labels.

    A run-level config key `label` names its group; others are named by `labels`. Unfinished runs are left out,
    a mean over runs of different lengths would mean nothing: list them with `left_out`.
    """
    by_config: dict[str, dict[object, Run]] = {}
    flats: dict[str, Flat] = {}
    for run in runs:
        if run.finished:
            flat = {key: value for key, value in flatten(run.config).items() if _counts(key)}
            key = json.dumps(flat, sort_keys=True, default=str)
            flats[key] = flat
            seeds = by_config.setdefault(key, {})
            seeds.setdefault(run.seed if run.seed is not None else run.folder, run)
    members = [sorted(seeds.values(), key=lambda run: (run.seed or 0, str(run.folder))) for seeds in by_config.values()]
    given = [next((str(run.config["label"]) for run in own if run.config.get("label")), "") for own in members]
    names = _distinct([label or name for label, name in zip(given, labels(list(flats.values())))])
    return sorted((Group(name, tuple(own)) for name, own in zip(names, members)), key=lambda one: one.label)


def left_out(runs: Iterable[Run], groups: Iterable[Group]) -> list[tuple[Run, str]]:
    """The runs in no group, each with the reason: its state, or that its seed is there already."""
    used = {run.folder for one in groups for run in one.runs}
    out = []
    for run in runs:
        if run.folder not in used:
            reason = "repeats a seed" if run.finished else "no evaluation" if run.state == "finished" else run.state
            out.append((run, reason))
    return out


def flatten(config: Mapping[str, Any], prefix: str = "") -> Flat:
    """Nested mappings as one with dotted keys; lists stay values."""
    flat: Flat = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def labels(flats: Sequence[Flat]) -> list[str]:
    """A short name for each config, made of what differs.

    The parts (`_target_`) that differ, by their module's name, which is their config's name, a compressor with its
    first setting if that is a number; and, among the configs with the same parts, the settings that differ:
    `topk fraction=0.03`, `sign`, `sign lr=0.1`. Where downlinks differ too, arrows tell the ways apart: `sign ↑↓`,
    `topk ↑ fraction=0.03 sign ↓`. A single config is named by its algorithm and compressors.
    """
    parts = [{key: _module(value) for key, value in flat.items() if key.endswith("_target_")} for flat in flats]
    shown = _differing(parts)
    if len(flats) == 1:
        shown = {key for key in parts[0] if key.split(".")[0] in ("algorithm", *ARROWS)}
    clusters: dict[str, list[int]] = {}
    for index, part in enumerate(parts):
        clusters.setdefault(json.dumps(part, sort_keys=True), []).append(index)
    names = [""] * len(flats)
    for cluster in clusters.values():
        settings = _differing([flats[index] for index in cluster])
        settings |= {key for index in cluster for key in _amounts(flats[index], shown)}
        short = _short_keys(settings)
        for index in cluster:
            names[index] = _join(
                [
                    (key, parts[index][key] if key in parts[index] else f"{short[key]}={_value(value)}")
                    for key, value in flats[index].items()
                    if key in shown or key in settings
                ]
            )
    return [name or "run" for name in names]


def _distinct(names: Sequence[str]) -> list[str]:
    """The names, numbered where the same one was given to different configs."""
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if names.count(name) == 1 else f"{name} #{seen[name]}")
    return out


def _counts(key: str) -> bool:
    """Whether this dotted key changes what a run computes."""
    words = key.split(".")
    return not any(".".join(words[:length]) in NOT_RESULTS for length in range(1, len(words) + 1))


def _amounts(flat: Flat, shown: set[str]) -> list[str]:
    """The first setting of each compressor shown, if it is a number: how much it sends."""
    keys = []
    for side in ARROWS:
        first = next((key for key in flat if key.startswith(f"{side}.") and not key.endswith("_")), None)
        if first is not None and f"{side}._target_" in shown and type(flat[first]) in (int, float):
            keys.append(first)
    return keys


def _differing(flats: Sequence[Flat]) -> set[str]:
    """Keys that are missing in some of the configs or have more than one value."""
    keys = {key for flat in flats for key in flat}
    missing = object()
    return {key for key in keys if any(flat.get(key, missing) != flats[0].get(key, missing) for flat in flats)}


def _module(target: Any) -> str:
    """`fedcomp.compressor.topk.TopK` -> `topk`, `fedcomp.compressor.mrc.codec.Codec` -> `mrc.codec`."""
    path = str(target).split(".")
    if path[0] == "fedcomp" and len(path) > 3:
        return ".".join(path[2:-1])
    return path[-2] if len(path) > 1 else path[0]


def _short_keys(keys: Iterable[str]) -> dict[str, str]:
    """The last word of each dotted key, with as many words before it as keep two keys apart."""
    split = {key: [word for word in key.split(".") if word not in ARROWS] for key in keys}
    short = {}
    for key, words in split.items():
        others = [other for other in split.values() if other != words]
        length = 1
        while length < len(words) and any(other[-length:] == words[-length:] for other in others):
            length += 1
        short[key] = ".".join(words[-length:])
    return short


def _value(value: Any) -> str:
    """A config value as on the command line: 0.03, true, null."""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if isinstance(value, str) else json.dumps(value, default=str)


def _join(words: Sequence[tuple[str, str]]) -> str:
    """The words once each, with the arrows of all the folders they stand in, unless the word before has the same.

    The uplink alone needs no arrow.
    """
    arrows: dict[str, str] = {}
    for key, word in words:
        arrows[word] = arrows.get(word, "") + ARROWS.get(key.split(".")[0], "")
    two_way = any("↓" in own for own in arrows.values())
    out, before = [], ""
    for word, own in arrows.items():
        out.append(f"{word} {own}" if two_way and own and own != before else word)
        before = own
    return " ".join(out)
