"""A table of a paper beside our runs: accuracy and bits of each method, printed and measured."""

from collections.abc import Mapping, Sequence

from fedcomp.reporting.tables.published import Printed
from scripts.reproduce.difference import Difference, difference
from scripts.reproduce.markdown import ROUNDS_AND_SEEDS, Cell, average, best, last, measured, table
from scripts.reproduce.records import Records, Run

Rows = Mapping[str, Printed]
"""{label: the printed row}: labels are the paper's names of methods."""
ACCURACY = "test/accuracy"
TEST_SAMPLES = 10_000
"""Of MNIST, Fashion-MNIST and CIFAR-10."""
UPLINK: tuple[str, Cell] = ("uplink, bits per parameter", last("bpp/uplink", "{:.3f}".format))
"""A column with the true uplink bits per parameter, client and round."""
BEST: tuple[str, Cell] = ("best accuracy (%)", best(ACCURACY))
"""A column with the best accuracy over the rounds."""


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

    columns: list[tuple[str, Cell]] = [BEST, *([("printed", printed("accuracy"))] if rows else []), *more]
    if any(row.rates for row in rows.values()):
        columns += [
            ("bits up + down, true", lambda runs: measured(runs.collect(lambda run: rate(run, "")), "{:.3g}".format)),
            (
                "as the paper counts",
                lambda runs: measured(runs.collect(lambda run: rate(run, "paper/")), "{:.3g}".format),
            ),
            ("printed", printed("bits")),
        ]
    return table("", [(label, records.where(label=label)) for label in labels], [*columns, *ROUNDS_AND_SEEDS])


def rate(run: Run, count: str) -> float | None:
    """Bits per parameter, client and round, both ways; count: "" (true) or "paper/" (true where it counts no other)."""
    found = []
    for way in ("uplink", "downlink"):
        value = run.last(f"{count}bpp/{way}")
        found.append(run.last(f"bpp/{way}") if value is None else value)
    return None if None in found else sum(value for value in found if value is not None)


def finished(records: Records, *labels: str) -> list[Records] | None:
    """The runs of each method; None before those of all are at their end.

    A claim about 100 rounds is not judged after 3.
    """
    chosen = [records.where(label=label) for label in labels]
    return chosen if all(map(ended, chosen)) else None


def ended(records: Records) -> bool:
    """Whether there are runs, and all are at their end."""
    return bool(records) and all(run.rounds >= int(run.about["of_rounds"]) for run in records)


def above(records: Records, label: str, references: Sequence[str]) -> list[Difference | None]:
    """By how much a method's best accuracy is above each reference's, as `compared`; None before all have ended."""
    pairs = [finished(records, label, reference) for reference in references]
    return [None if runs is None else compared(*runs) for runs in pairs]


def compared(own: Records, other: Records) -> Difference:
    """By how much the best accuracy over the rounds of some runs is above that of others.

    Seed by seed, over the seeds that both have; between means if they share none.
    """
    one, two = ({run.about["seed"]: run.best(ACCURACY) or 0.0 for run in each} for each in (own, other))
    shared = sorted(one.keys() & two.keys())
    if not shared:
        return difference([*one.values()], [*two.values()], TEST_SAMPLES)
    return difference([one[seed] for seed in shared], [two[seed] for seed in shared], TEST_SAMPLES, paired=True)


def distance(other: Records, digits: int = 2) -> Cell:
    """A cell: by how many points some runs are above others, as `compared`; nothing before all are at their end."""

    def of(own: Records) -> str:
        if own is other or not (ended(own) and ended(other)):
            return ""
        found = compared(own, other)
        return f"{100 * found.mean:+.{digits}f} ± {100 * found.error:.{digits}f}"

    return of


def bits(records: Records, label: str) -> float | None:
    """The mean over seeds of a method's true bits per parameter."""
    return average(records.where(label=label), lambda run: rate(run, ""))
