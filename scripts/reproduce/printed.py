"""A table of a paper beside our runs: accuracy and bits of each method, printed and measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedcomp.reporting.tables.published import Printed
from scripts.reproduce.markdown import Cell, average, spread, table
from scripts.reproduce.records import Records, Run

Rows = Mapping[str, Printed]
"""{label: the printed row}: labels are the paper's names of methods."""


def beside(rows: Rows, records: Records, more: Sequence[tuple[str, Cell]] = ()) -> str:
    """A row for each method: best accuracy over the rounds and bits per parameter, ours and printed."""
    labels = [*rows, *(label for label in records.values("label") if label not in rows)]

    def printed(show: str) -> Cell:
        def of(runs: Records) -> str:
            row = rows.get(runs.runs[0].about["label"])
            if row is None:
                return ""
            return f"{100 * row.accuracy:.1f}" if show == "accuracy" else f"{row.rates['bpp']:g}"

        return of

    columns: list[tuple[str, Cell]] = [
        ("best accuracy (%)", lambda runs: spread(runs.collect(best), "{:.2f}".format, 100)),
        ("printed", printed("accuracy")),
        *more,
    ]
    if any(row.rates for row in rows.values()):
        columns += [
            ("bits up + down, true", lambda runs: spread(runs.collect(lambda run: rate(run, "")), "{:.3g}".format)),
            (
                "as the paper counts",
                lambda runs: spread(runs.collect(lambda run: rate(run, "paper/")), "{:.3g}".format),
            ),
            ("printed", printed("bits")),
        ]
    columns += [("rounds", lambda runs: str(min(run.rounds for run in runs))), ("seeds", lambda runs: str(len(runs)))]
    return table("", [(label, records.where(label=label)) for label in labels], columns)


def _rate(count: str) -> Cell:
    return lambda runs: spread(runs.collect(lambda run: rate(run, count)), "{:.3g}".format)


def best(run: Run) -> float | None:
    """The best test accuracy over the rounds, which papers print."""
    return run.best("test/accuracy")


def rate(run: Run, count: str) -> float | None:
    """Bits per parameter, client and round, both ways; count: "" (true) or "paper/" (true where it counts no other)."""
    found = []
    for way in ("uplink", "downlink"):
        value = run.last(f"{count}bpp/{way}")
        found.append(run.last(f"bpp/{way}") if value is None else value)
    return None if None in found else sum(value for value in found if value is not None)


def mean(records: Records, label: str) -> float | None:
    """The mean over seeds of a method's best accuracy."""
    return average(records.where(label=label), best)


def bits(records: Records, label: str) -> float | None:
    """The mean over seeds of a method's true bits per parameter."""
    return average(records.where(label=label), lambda run: rate(run, ""))
