"""A table as people read it: rows of text, with the numbers behind them.

`formats.py` writes it for the terminal, as Markdown and as CSV, `latex.py` and `page.py` as LaTeX and HTML.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

FEWEST = 3
"""At least so many of the most important columns are shown, whether they fit or not."""


@dataclass(frozen=True)
class Rows:
    """R rows of C columns: the first columns name a row, the others hold its numbers.

    Attributes:
        titles: [C] of the columns.
        cells: [R][C] plain text.
        num_names: columns that name a row. num_settings: the first of these, in which the rows of one block agree.
        caption: plain text.
        raw: the lines of the CSV, {column: text, number or None}; it may have columns and lines that people do not see.
        names: [C - num_names] the columns of numbers, as `--columns` and the CSV call them.
        numbers: [R][C - num_names] what a column is sorted by; None where that is its text.
        best: [C - num_names] the rows with the best number of their block.
        ranked: [C - num_names] `names`, the most important one first, of a table that may be cut to fit.
    """

    titles: list[str]
    cells: list[list[str]]
    num_names: int
    num_settings: int
    caption: str
    raw: list[dict[str, object]]
    names: list[str] = field(default_factory=list)
    numbers: list[list[float | None]] = field(default_factory=list)
    best: list[set[int]] = field(default_factory=list)
    ranked: list[str] = field(default_factory=list)

    def named(self, text: str) -> "Rows":
        """The columns named in `a,b,c`, in that order, as the CSV calls them or as they are recorded (`test/accuracy`).

        Raises ValueError: an unknown name, or a name twice.
        """
        wanted = [word.strip().replace("/", "_") for word in text.split(",") if word.strip()]
        unknown = [word for word in wanted if word not in self.names]
        if unknown or not wanted:
            given = ", ".join(unknown) or repr(text)
            raise ValueError(f"--columns {given}: no such column in this table, allowed are {', '.join(self.names)}")
        if len(set(wanted)) < len(wanted):
            raise ValueError(f"--columns {text}: a column is named twice")
        return self.select(wanted)

    def select(self, names: Sequence[str]) -> "Rows":
        """The table with these columns of numbers alone, in this order. Its CSV keeps all."""
        places = [self.names.index(name) for name in names]
        shown = [*range(self.num_names), *(self.num_names + place for place in places)]
        return replace(
            self,
            titles=[self.titles[column] for column in shown],
            cells=[[row[column] for column in shown] for row in self.cells],
            names=list(names),
            numbers=[[row[place] for place in places] for row in self.numbers],
            best=[self.best[place] for place in places],
            ranked=[name for name in self.ranked if name in names],
        )

    def fitting(self, widths: Sequence[float], room: float, fewest: int) -> "Rows":
        """The columns of numbers for which there is room, the most important ones first, `fewest` at least.

        Args:
            widths: [C] of every column, with the gap beside it.
        """
        if not self.ranked:
            return self
        each = dict(zip(self.names, widths[self.num_names :]))
        spent, kept = sum(widths[: self.num_names]), set[str]()
        for name in self.ranked:
            spent += each[name]
            if spent > room and len(kept) >= fewest:
                break
            kept.add(name)
        return self.select([name for name in self.names if name in kept])

    def bold(self, row: int) -> set[int]:
        """[0, C) the columns in which this row is the best."""
        return {self.num_names + column for column, rows in enumerate(self.best) if row in rows}

    @property
    def breaks(self) -> set[int]:
        """The rows that begin a block, but for the first row."""
        blocks = [row[: self.num_settings] for row in self.cells]
        return {number for number in range(1, len(blocks)) if blocks[number] != blocks[number - 1]}
