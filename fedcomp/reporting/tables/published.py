"""Figures that papers printed, beside ours: `--against bicompfl`.

Each CSV in `published/` holds a paper's tables with their source. Two of its columns are conditions on a run's config:
they say which of our groups correspond to the printed row.
"""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from fedcomp.core.folders import part_name
from fedcomp.display import units
from fedcomp.display.metric import ACCURACY, metric
from fedcomp.records.reader import RecordedRun
from fedcomp.reporting.group import RunGroup
from fedcomp.reporting.labels import Flat, flatten, show_value
from fedcomp.reporting.mean import Mean, mean_over_seeds
from fedcomp.reporting.tables import formats
from fedcomp.reporting.tables.quantities import last
from fedcomp.reporting.tables.rows import Rows

FOLDER = files("fedcomp.reporting.tables").joinpath("published")
RATES = ("bpp", "bpp_bc", "uplink", "downlink")
"""Bits per parameter, client and round: both ways, both with a broadcast counted once, and each way.

The downlink is that of one receiver (`bpp/downlink_per_receiver`), as papers print it: they do not
charge participants with what idle clients receive.
"""


@dataclass(frozen=True)
class Printed:
    """One row of a paper's table.

    Attributes:
        table: its number.
        dataset, model, partition, method: as the paper calls them.
        where: condition on a run's config: the same data, model and clients.
        match: condition on a run's config: the same method.
        accuracy: best over the rounds, a fraction.
        accuracy_std: as printed.
        rates: those of RATES that the table has.
    """

    table: str
    dataset: str
    model: str
    partition: str
    method: str
    where: str
    match: str
    accuracy: float
    accuracy_std: float
    rates: dict[str, float]


@dataclass(frozen=True)
class Pair:
    """A printed row and our counterpart.

    Attributes:
        printed: the row.
        ours: one of the groups that meet its conditions; None if none does.
        accuracy: of our group, mean over seeds of each seed's best.
        rates: of our group, as the papers count.
        true_rates: of our group, all that was sent.
    """

    printed: Printed
    ours: RunGroup | None = None
    accuracy: Mean | None = None
    rates: dict[str, Mean] = field(default_factory=dict)
    true_rates: dict[str, Mean] = field(default_factory=dict)


def papers() -> list[str]:
    """The names that `--against` knows."""
    return sorted(file.name.removesuffix(".csv") for file in FOLDER.iterdir())


def load(paper: str, methods: Sequence[str] = ()) -> list[Printed]:
    """A paper's rows in its order. Raises ValueError: no such paper; `methods` could be meant as well."""
    if paper not in papers():
        own = f", or a method: {', '.join(methods)}" if methods else ""
        raise ValueError(f"--against {paper}: no such figures, allowed are {', '.join(papers())}{own}")
    text = FOLDER.joinpath(f"{paper}.csv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return [
        Printed(
            **{name: row[name] for name in ("table", "dataset", "model", "partition", "method", "where", "match")},
            accuracy=float(row["accuracy"]),
            accuracy_std=float(row["accuracy_std"]),
            rates={rate: float(row[rate]) for rate in RATES if row[rate]},
        )
        for row in csv.DictReader(lines)
    ]


def meets(flat: Flat, condition: str) -> bool:
    """Whether a config meets `a=1;b=x | c=2`: one of the alternatives, and all of its terms."""
    return any(all(_holds(flat, term) for term in option.split(";")) for option in condition.split("|"))


def compare(groups: Sequence[RunGroup], rows: Sequence[Printed]) -> list[Pair]:
    """Each printed row with each of our groups that meets its conditions, or alone."""
    pairs, flats = [], [flatten(one.runs[0].config) for one in groups]
    for row in rows:
        own = [one for one, flat in zip(groups, flats) if meets(flat, row.where) and meets(flat, row.match)]
        pairs += [_pair(row, one) for one in own] or [Pair(row)]
    return pairs


def without_counterpart(groups: Sequence[RunGroup], pairs: Sequence[Pair]) -> list[str]:
    """Our groups without a printed row, by setting and label."""
    used = {id(pair.ours) for pair in pairs}
    return [" · ".join(part for part in (one.place, one.label) if part) for one in groups if id(one) not in used]


def rows(paper: str, pairs: Sequence[Pair], unmatched: Sequence[str]) -> Rows:
    """The comparison as a table: printed rows that have a counterpart; in the CSV, every printed row."""
    rated = any(pair.printed.rates for pair in pairs)
    titles = ["table", "setting", "method", "ours", "seeds", "printed (%)", "ours, best (%)", "difference"]
    titles += ["printed bpp", "ours, as counted there", "difference", "ours, true"] if rated else []
    cells = [_cells(pair, rated) for pair in pairs if pair.ours is not None]
    alone = f"{sum(pair.ours is None for pair in pairs)} printed rows have no run of ours"
    caption = f"Against {paper}: {alone}, {len(unmatched)} groups of ours are not printed: against.md."
    return Rows(titles, cells, 4, 2, caption, [_raw(pair) for pair in pairs])


def _cells(pair: Pair, rated: bool) -> list[str]:
    """A row as text."""
    row, mean = pair.printed, pair.accuracy
    assert pair.ours is not None
    texts = [row.table, f"{row.dataset} {row.model} {row.partition}", row.method, pair.ours.label]
    texts += [str(len(pair.ours.runs)), f"{100 * row.accuracy:.1f}"]
    texts.append("–" if mean is None else mean.shown(units.percent))
    texts.append("–" if mean is None else f"{100 * (mean.mean - row.accuracy):+.2f}")
    if rated:
        printed, counted, true = row.rates.get("bpp"), pair.rates.get("bpp"), pair.true_rates.get("bpp")
        texts.append("–" if printed is None else f"{printed:g}")
        texts.append("–" if counted is None else units.significant(counted.mean))
        texts.append("–" if printed is None or counted is None else f"{counted.mean - printed:+.3g}")
        texts.append("–" if true is None else units.significant(true.mean))
    return texts


def _raw(pair: Pair) -> dict[str, object]:
    """Raw numbers of a printed row: printed, ours as the papers count, ours true; None where there is none."""
    row, mean = pair.printed, pair.accuracy
    found: dict[str, object] = {"table": row.table, "dataset": row.dataset, "model": row.model}
    found |= {"partition": row.partition, "method": row.method}
    found |= {"ours": pair.ours and pair.ours.label, "seeds": pair.ours and len(pair.ours.runs)}
    found |= {"printed_accuracy": row.accuracy, "printed_accuracy_std": row.accuracy_std}
    found |= {"accuracy": mean and mean.mean, "accuracy_std": mean and mean.deviation}
    found["accuracy_difference"] = mean and mean.mean - row.accuracy
    for rate in RATES:
        counted, true = pair.rates.get(rate), pair.true_rates.get(rate)
        found[f"printed_{rate}"] = row.rates.get(rate)
        found |= {rate: counted and counted.mean, f"true_{rate}": true and true.mean}
    return found


def to_markdown(paper: str, pairs: Sequence[Pair], unmatched: Sequence[str]) -> str:
    """The comparison, then what has no counterpart on either side."""
    table = rows(paper, pairs, unmatched)
    text = formats.to_markdown(table) if table.cells else "No group of these runs stands for a printed row.\n"
    alone = [pair.printed for pair in pairs if pair.ours is None]
    lines = [f"# Against {paper}", "", text, f"Printed rows without a run of ours: {len(alone)}", ""]
    lines += [
        f"- Table {row.table}, {row.dataset} {row.model} {row.partition}: {formats.escape_markdown(row.method)}"
        for row in alone
    ]
    lines += [
        "",
        f"Groups of ours that are not printed: {len(unmatched)}",
        "",
        *(f"- {formats.escape_markdown_line(name)}" for name in unmatched),
    ]
    return "\n".join(lines) + "\n"


def _pair(row: Printed, ours: RunGroup) -> Pair:
    """The numbers of our group that stand beside a printed row."""
    values = [value for run in ours.runs if (value := metric(ACCURACY).best(run.lines)) is not None]
    accuracy = mean_over_seeds(values) if values else None
    return Pair(row, ours, accuracy, _rates(ours, "paper/"), _rates(ours, ""))


def _rates(group: RunGroup, prefix: str) -> dict[str, Mean]:
    """RATES of a group, as the papers count (`paper/`, true where a paper counts no other) or true."""

    def rate(run: RecordedRun, way: str) -> float:
        key = f"bpp/{'downlink_per_receiver' if way == 'downlink' else way}"
        value = last(f"{prefix}{key}")(run)
        value = last(key)(run) if value is None else value
        return math.nan if value is None else value

    ways = {"bpp": ("uplink", "downlink"), "bpp_bc": ("uplink", "broadcast")}
    out = {}
    for name in RATES:
        values = [math.fsum(rate(run, way) for way in ways.get(name, (name,))) for run in group.runs]
        if all(map(math.isfinite, values)):
            out[name] = mean_over_seeds(values)
    return out


def _holds(flat: Flat, term: str) -> bool:
    """Whether `key=value` holds: a part's name, a number as a number, else as written (null: not set), in any case."""
    key, _, wanted = (part.strip() for part in term.partition("="))
    if f"{key}._target_" in flat:
        return part_name(flat[f"{key}._target_"]) == wanted
    value = flat.get(key)
    try:
        return float(str(value)) == float(wanted)
    except ValueError:
        return key in flat and show_value(value).lower() == wanted.lower()
