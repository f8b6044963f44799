"""Names of configs, made of what sets them apart."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from fedcomp.core.folders import part_name
from fedcomp.core.validate import suggest

ARROWS = {"compressor": "↑", "downlink": "↓"}
"""The two config folders that hold compressors, and the way their messages go."""
NAMED = ("feedback", "predictor")
"""Options of a compressor that are a name or a node with a `_target_`: a setting, `feedback=error`, in both forms."""
DENSE = "dense"
"""The compressor that a method without one counts as, where others are told apart by theirs."""

Flat = dict[str, Any]
"""A config as {dotted key: scalar or list}."""


def flatten(config: Mapping[str, Any], prefix: str = "") -> Flat:
    """Nested mappings as one with dotted keys; lists stay values."""
    flat: Flat = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def within(key: str, folders: Collection[str]) -> bool:
    """Whether a dotted key is one of `folders` or lies in one."""
    while key and key not in folders:
        key = key.rpartition(".")[0]
    return bool(key)


def part_names(targets: Sequence[object]) -> list[str]:
    """What parts of one folder are called: by their module's name, which is their config's; of a module with several
    of them by their class too, `mine.First` and `mine.Last`.
    """
    short = {str(target): part_name(target) for target in targets}
    times = Counter(short.values())
    own = {target: name if times[name] == 1 else ".".join(target.split(".")[-2:]) for target, name in short.items()}
    return [own[str(target)] for target in targets]


def labels(flats: Sequence[Flat], panels: Sequence[object] = ()) -> list[str]:
    """A short name for each config, made of what differs.

    The parts (`_target_`) that differ, by their names, a compressor with its first setting if that is a number; and,
    among the configs with the same parts, the settings that differ: `topk fraction=0.03`, `sign`, `sign lr=0.1`. Where
    downlinks differ too, arrows tell the ways apart: `sign ↑↓`, `topk ↑ fraction=0.03 sign ↓`. A single config is named
    by its algorithm and compressors. A part within another, which not all have, is named behind it: `randk temporal`.

    Args:
        flats: the configs, without what shall not be in a name.
        panels: of each config, the picture it stands in: what differs only between pictures (another learning rate on
            another dataset) is not in a name either. Empty: one picture.
    """
    flats = _with_names(flats)
    parts = _parts(flats)
    mates = _clusters(panels or [None] * len(flats))
    shown = set[str]()
    for own in ([parts[index] for index in mate] for mate in mates):
        differing = _differing(own)
        shown |= differing | {_around(key) for key in differing if not all(key in part for part in own)}
    if all(len(mate) == 1 for mate in mates):
        shown = {key for part in parts for key in part if key.split(".")[0] in ("algorithm", *ARROWS)}
    names = [""] * len(flats)
    for cluster in _clusters([json.dumps(part, sort_keys=True) for part in parts]):
        members = set(cluster)
        together = [[flats[index] for index in mate if index in members] for mate in mates]
        settings = {key for same in together for key in _differing(same)}
        settings |= {key for index in cluster for key in _amounts(flats[index], shown)}
        short = short_keys(settings)
        for index in cluster:
            names[index] = _join(
                [
                    (key, parts[index][key] if key in parts[index] else f"{short[key]}={show_value(value)}")
                    for key, value in flats[index].items()
                    if key in shown or key in settings
                ]
            )
    return [name or "run" for name in names]


def _with_names(flats: Sequence[Flat]) -> list[Flat]:
    """The configs with the class of each of NAMED that is a node in the place of its name; of two classes that are
    called alike, with the file too.
    """
    nodes = {f"{side}.{name}._target_": f"{side}.{name}" for side in ARROWS for name in NAMED}
    targets = {str(flat[node]) for flat in flats for node in nodes if node in flat}
    times = Counter(target.split(".")[-1] for target in targets)

    def named(key: str, value: Any) -> tuple[str, Any]:
        if key not in nodes:
            return key, value
        words = str(value).split(".")
        return nodes[key], ".".join(words[-1 if times[words[-1]] == 1 else -2 :])

    return [dict(named(key, value) for key, value in flat.items()) for flat in flats]


def _around(key: str) -> str:
    """The key of the part that holds another: `compressor._target_` of `compressor.estimator._target_`."""
    return f"{key.split('.')[0]}._target_"


def _parts(flats: Sequence[Flat]) -> list[dict[str, str]]:
    """Of each config, its parts by name."""
    parts: list[dict[str, str]] = [{} for _ in flats]
    for key in dict.fromkeys(key for flat in flats for key in flat if key.endswith("_target_")):
        having = [index for index, flat in enumerate(flats) if key in flat]
        for index, name in zip(having, part_names([flats[index][key] for index in having])):
            parts[index][key] = name
    return parts


def distinct(names: Sequence[str], places: Sequence[object] = ()) -> list[str]:
    """The names, numbered where the same one was given several times, at one place if they have places."""
    pairs = list(zip(names, places or [None] * len(names), strict=True))
    times, seen = Counter(pairs), Counter[tuple[str, object]]()
    out = []
    for pair in pairs:
        seen[pair] += 1
        out.append(pair[0] if times[pair] == 1 else f"{pair[0]} #{seen[pair]}")
    return out


def in_order(
    labels: Sequence[str], order: Sequence[str] = (), rename: Mapping[str, str] | None = None
) -> dict[str, str]:
    """{label: its name}, those of `order` first; a label without another name keeps its own.

    Args:
        order: labels, names, or the first word of labels: `topk` for `topk fraction=0.03` and others. One with commas
            may be given in the pieces between them, one after another.
        rename: {label or its first word: its name}.
    Raises:
        ValueError: a name that nothing has, or two labels with one name.
    """
    new = {label: name for given, name in (rename or {}).items() for label in _begin_with(given, labels)}
    names = {label: new.get(label, label) for label in labels}
    labels_of = {name: label for label, name in names.items()}
    for name in labels_of:
        if len(same := [other for other in names if names[other] == name]) > 1:
            raise ValueError(f"two methods cannot have one name: {' and '.join(same)} would both be {name}")
    first = [
        label
        for given in _whole(order, [*labels, *labels_of])
        for label in _begin_with(labels_of.get(given, given), labels)
    ]
    return {label: names[label] for label in dict.fromkeys([*first, *labels])}


def _whole(order: Sequence[str], known: Iterable[str]) -> list[str]:
    """The same names, those with commas whole: a command line is split at commas."""
    by_pieces = {tuple(piece.strip() for piece in name.split(",")): name for name in known}
    rest, found = tuple(order), []
    while rest:
        many = next((number for number in range(len(rest), 1, -1) if rest[:number] in by_pieces), 1)
        found.append(by_pieces.get(rest[:many], rest[0]))
        rest = rest[many:]
    return found


def _begin_with(given: str, labels: Sequence[str]) -> list[str]:
    """The label, or those whose first word is given."""
    found = [given] if given in labels else [one for one in labels if given == one.split(" ")[0].rstrip(",")]
    if not found:
        raise ValueError(f"no method is called '{given}'{suggest(given, labels)}")
    return found


def short_keys(keys: Iterable[str]) -> dict[str, str]:
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


def show_value(value: Any) -> str:
    """A config value as on the command line: 0.03, true, null."""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if isinstance(value, str) else json.dumps(value, default=str)


def _clusters(keys: Sequence[object]) -> list[list[int]]:
    """The indices with the same key, in order."""
    clusters: dict[object, list[int]] = {}
    for index, key in enumerate(keys):
        clusters.setdefault(key, []).append(index)
    return list(clusters.values())


def _differing(flats: Sequence[Flat]) -> set[str]:
    """Keys that are missing in some of the configs or have more than one value.

    A method that does not use a compressor has none of its keys: then it counts as `dense`, without settings.
    """
    found = set()
    for key in {key for flat in flats for key in flat}:
        folder, _, rest = key.partition(".")
        missing: object = DENSE if folder in ARROWS and rest == "_target_" else None
        own = flats
        if folder in ARROWS and rest != "_target_":
            own = [flat for flat in flats if any(one.startswith(f"{folder}.") for one in flat)]
        if len({json.dumps(flat.get(key, missing), default=str) for flat in own}) > 1:
            found.add(key)
    return found


def _amounts(flat: Flat, shown: set[str]) -> list[str]:
    """The first setting of each compressor shown, if it is a number: how much it sends."""
    keys = []
    for side in ARROWS:
        first = next((key for key in flat if _sets(side, key)), None)
        if first is not None and f"{side}._target_" in shown and type(flat[first]) in (int, float):
            keys.append(first)
    return keys


def _sets(side: str, key: str) -> bool:
    """Whether a key is a setting of a compressor, and not one of what it is combined with."""
    folder, _, rest = key.partition(".")
    return folder == side and not key.endswith("_") and rest.split(".")[0] not in NAMED


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
