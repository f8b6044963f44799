"""One entry of `figures:` in a config: a picture that an experiment asks for, beside the ones every report has.

    figures:
      - {name: mse, x: vectors/correlation, y: [mse], beside: [mse/closed_form], panel: compressor.fraction}
      - {name: train_loss, kind: curve, x: round, y: [train/loss], marks: [600]}
      - {name: loss_variance, kind: variance, x: round, y: [train/loss, test/loss], log_y: true}
      - {name: excess, kind: curve, x: round, y: [estimate/variance], average: true, lines: {"d - 1": 232}}
      - {name: cost, kind: runs, x: gradients, y: [test/excess]}
      - {name: cep, kind: circle, y: [theta/0, theta/1]}
      - {name: fig2, x: uplink, y: test/accuracy, size: 3.3x2.2, ylim: "0.8:0.95", rename: {fedavg: FedAvg}}

`kind: last` (the default) shows each run's last values, one line a method, over x: a metric of the last line or a
config key. Config keys under `without` vary along a line and are not in its name. `curve` shows means over seeds along
the run, `variance` the sample variance over seeds, `runs` a thin line for each repetition (or seed) and their thick
mean, `circle` the last place of each repetition in the plane of two metrics, with the circle that holds half of them.
Each key under `y` has panels of its own, one for each value of `panel`, a config key or a metric too.

`uplink`, `downlink`, `total`, `rounds` and `seconds` are short for what a run spends (`bits/uplink`); over these `kind`
is `curve` unless it is given.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedcomp.core.validate import check_one_line, is_number

KINDS = ("last", "curve", "variance", "runs", "circle")
OF_KIND = {"beside": "last", "panel": "last", "without": "last", "average": "curve"}
"""{option: the kind that it is for}."""
SHORT = {
    "uplink": "bits/uplink",
    "downlink": "bits/downlink",
    "total": "bits/total",
    "rounds": "round",
    "seconds": "time/total",
}
"""Short names of what a run spends."""
LEGENDS = (
    *("below", "right", "none", "best", "upper left", "upper center", "upper right", "center left", "center"),
    *("center right", "lower left", "lower center", "lower right"),
)
"""Beside the axes, nowhere, or inside, by matplotlib's words."""
COLUMN = (3.3, 2.2)
"""Inches: a figure in a column of a two-column paper."""
TEXTS = ("size", "xlim", "ylim")
"""Options that YAML would not read as written: 0.8:0.9."""
Limits = tuple[float | None, float | None]


@dataclass(frozen=True)
class Figure:
    """One entry of `figures:`.

    Attributes:
        name: of its files.
        y: metrics, each with panels of its own; of `circle` the two that span the plane.
        x: for `last` a metric of the last line or a dotted config key, else a metric along the run.
        kind: one of KINDS.
        beside: of `last`: metrics drawn dashed without markers in the method's colour, one for each of `y`.
        panel: of `last`: metric or config key; None: one panel.
        without: of `last`: config keys that vary along a line with x.
        average: of `curve`: each seed's running mean over its evaluations.
        lines: (label, value) of constants.
        marks: places on the x axis.
        log_x, log_y: logarithmic axes; None: bits and seconds are, others where their values span more than a decade
            and a half.
        size: width and height in inches, as a paper prints it; None: as wide as its panels need.
        xlim, ylim: where the axes begin and end, as recorded, accuracies as fractions; None: by what is shown.
        order: labels that come first, in this order. rename: (label, what it is called instead).
        legend: one of LEGENDS, for a figure with a `size`.
    """

    name: str
    y: tuple[str, ...]
    x: str = "round"
    kind: str = "last"
    beside: tuple[str, ...] = ()
    panel: str | None = None
    without: tuple[str, ...] = ()
    average: bool = False
    lines: tuple[tuple[str, float], ...] = ()
    marks: tuple[float, ...] = ()
    log_x: bool | None = None
    log_y: bool | None = None
    size: tuple[float, float] | None = None
    xlim: Limits | None = None
    ylim: Limits | None = None
    order: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    legend: str = "below"


def parse(entry: Any) -> Figure:
    """One entry of `figures:` as written in YAML. Raises ValueError: what is wrong with it, in one line."""
    if not isinstance(entry, Mapping):
        raise ValueError(f"figure {entry!r} is no mapping such as {{name: mse, x: round, y: [mse]}}")
    allowed = tuple(Figure.__dataclass_fields__)
    if unknown := [key for key in entry if key not in allowed]:
        raise ValueError(f"figure {entry.get('name')!r} has {unknown[0]!r}, allowed are {', '.join(allowed)}")
    if missing := [key for key in ("name", "y") if not entry.get(key)]:
        raise ValueError(f"figure {dict(entry)!r} has no {missing[0]!r}")
    options = dict(entry) | {"name": str(entry["name"])}
    check_one_line("figure", options["name"])
    for key in ("y", "beside", "without", "order"):
        if key in options:
            options[key] = _keys(options["name"], key, entry[key])
    for key, kinds in {"x": str, "panel": str | None}.items():
        if not isinstance(entry.get(key, ""), kinds):
            raise ValueError(
                f"figure {options['name']!r}: {key} is {entry[key]!r}, but must be a key such as test/loss"
            )
    for key in ("average", "log_x", "log_y"):
        if not isinstance(entry.get(key), bool | None):
            raise ValueError(f"figure {entry['name']!r}: {key} is {entry[key]!r}, but must be true or false")
    if options.get("x") in SHORT:
        options = {"kind": "curve"} | options | {"x": SHORT[options["x"]]}
    for key in ("xlim", "ylim"):
        options[key] = _limits(options["name"], key, entry.get(key))
    options["size"] = _size(options["name"], entry.get("size"))
    options["rename"] = renames(entry.get("rename"))
    try:
        options["lines"] = _lines(entry.get("lines") or {})
        options["marks"] = tuple(float(place) for place in entry.get("marks") or ())
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ValueError(
            f"figure {entry['name']!r}: lines are {{label: value}}, marks are numbers [600]; got "
            f"lines={entry.get('lines')!r}, marks={entry.get('marks')!r}"
        ) from error
    figure = Figure(**options)
    if figure.kind not in KINDS:
        raise ValueError(f"figure {figure.name!r}: kind is {figure.kind!r}, allowed are {', '.join(KINDS)}")
    for key, kind in OF_KIND.items():
        if entry.get(key) and figure.kind != kind:
            raise ValueError(f"figure {figure.name!r}: {key} is for kind={kind}, and this one has kind={figure.kind}")
    if figure.legend not in LEGENDS:
        raise ValueError(f"figure {figure.name!r}: legend is {figure.legend!r}, allowed are {', '.join(LEGENDS)}")
    if figure.kind == "circle" and len(figure.y) != 2:
        raise ValueError(f"figure {figure.name!r}: a circle lies in a plane of 2 metrics, but y has {len(figure.y)}")
    if figure.kind == "last" and len(figure.beside) > len(figure.y):
        raise ValueError(f"figure {figure.name!r}: {len(figure.beside)} beside for {len(figure.y)} y; give one a y")
    return figure


def _keys(name: str, option: str, given: Any) -> tuple[str, ...]:
    """One key or a list of them as a tuple."""
    keys = [given] if isinstance(given, str) else given or []
    if not isinstance(keys, list | tuple) or not all(isinstance(key, str) for key in keys):
        raise ValueError(
            f"figure {name!r}: {option} is {given!r}, but must be a key such as test/loss, or a list of keys"
        )
    return tuple(keys)


def asked(words: Sequence[str], number: int, **options: Any) -> dict[str, Any]:
    """The entry that `--figure x=uplink y=test/accuracy` asks for: one panel for a paper, unless the words say else.

    Args:
        words: `KEY=VALUE`, values as in YAML. number: of the figure in its command, for its name.
        options: of all figures of the command, such as `ylim`; None: not given.
    Raises:
        ValueError: a word without =, or a value that is no YAML.
    """
    import yaml

    entry = {
        "name": f"figure-{number}" if number > 1 else "figure",
        "x": "uplink",
        "y": "test/accuracy",
        "size": COLUMN,
    }
    entry |= {key: value for key, value in options.items() if value}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"--figure {word}: give KEY=VALUE, as x=uplink y=test/accuracy")
        try:
            entry[key] = value if key in TEXTS else yaml.safe_load(value)
        except yaml.YAMLError:
            raise ValueError(f"--figure {word}: {value} is no value as in YAML") from None
    return entry


def renames(given: Any) -> tuple[tuple[str, str], ...]:
    """The pairs of `{label: name}`. Raises ValueError: the entry is no such mapping."""
    if not isinstance(given or {}, Mapping):
        raise ValueError(f"rename is {given!r}, but must say for each label its name: {{fedavg: FedAvg}}")
    return tuple((str(label), str(name)) for label, name in (given or {}).items())


def _limits(name: str, option: str, given: Any) -> Limits | None:
    """`0.8:0.95`, `0.8:` or `[0.8, null]` as two ends."""
    if given is None:
        return None
    ends = [end.strip() or None for end in given.split(":")] if isinstance(given, str) else given
    try:
        low, high = (None if end is None else float(end) for end in ends)
    except (TypeError, ValueError):
        low = high = math.nan
    if any(end is not None and math.isnan(end) for end in (low, high)) or (
        low is not None and high is not None and not low < high
    ):
        raise ValueError(
            f"figure {name!r}: {option} is {given!r}, but must be LOW:HIGH, as 0.8:0.95, or one end, as 0.8:"
        )
    return low, high


def _size(name: str, given: Any) -> tuple[float, float] | None:
    """`3.3x2.2` or `[3.3, 2.2]`."""
    if given is None:
        return None
    try:
        width, height = map(float, given.lower().split("x") if isinstance(given, str) else given)
    except (TypeError, ValueError):
        width = height = 0.0
    if not (is_number(width) and 0.5 <= width <= 50 and 0.5 <= height <= 50):
        raise ValueError(
            f"figure {name!r}: size is {given!r}, but must be WIDTHxHEIGHT in inches from 0.5 to 50, such as 3.3x2.2"
        )
    return width, height


def _lines(given: Any) -> tuple[tuple[str, float], ...]:
    """`{label: value}` or `[{value: 232, label: d - 1}]`."""
    if isinstance(given, Mapping):
        return tuple((str(label), float(value)) for label, value in given.items())
    return tuple((str(one.get("label", one["value"])), float(one["value"])) for one in given)
