"""One HTML file that needs nothing else: the table to sort, pictures to zoom and to point at. No network, no server.

plotly.js (about 4.7 MB) lies inside. `page.js` draws what this module writes as JSON.
"""

import html
import json
from collections.abc import Sequence
from importlib.resources import files

import numpy as np

from fedcomp.display import figure
from fedcomp.reporting.pictures.picture import Axis, Panel, Picture
from fedcomp.reporting.tables.rows import FEWEST, Rows

DASHES = ("solid", "dash", "dot", "dashdot")
MARKERS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x")
DIGITS = 6
"""Significant digits of a number in a picture."""


class ArrayPool:
    """Arrays that panels share; each is written once."""

    def __init__(self) -> None:
        self.arrays: list[list[float | int | None]] = []
        self._places: dict[bytes, int] = {}

    def place(self, array: np.ndarray) -> int:
        """The array's number, new if none of the same values is there; -1 for one without any finite value."""
        if not np.isfinite(array).any():
            return -1
        key = array.tobytes()
        if key not in self._places:
            self._places[key] = len(self.arrays)
            self.arrays.append([_number(value) for value in array.tolist()])
        return self._places[key]


def to_html(
    title: str,
    table: Rows,
    pictures: Sequence[Picture],
    notes: Sequence[tuple[str, list[str]]],
    hides_columns: bool = True,
) -> str:
    """The page.

    Args:
        title: heading.
        table: first, sortable by a click on a column's head.
        pictures: those of one section share a place: menus choose setting and axes.
        notes: (heading, lines) of what is not in the table and why.
        hides_columns: where the window is too narrow for all columns, the least important ones are hidden, and a line
            above the table names them and brings them back; else the table scrolls, and the line says that.
    """
    pool = ArrayPool()
    sections: dict[str, dict] = {}
    for picture in pictures:
        section = sections.setdefault(picture.section, {"title": picture.section, "panels": []})
        section["panels"] += [_panel(panel, picture, pool) for panel in picture.panels]
    data = {
        "arrays": pool.arrays,
        "sections": list(sections.values()),
        "colours": figure.COLOURS,
        "dashes": DASHES,
        "markers": MARKERS,
    }
    # JSON that cannot end the script element it stands in, and plotly.js as the Python package ships it
    in_script = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    plotly = (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    here = files("fedcomp.reporting")
    remarks = "".join(
        f"<h3>{html.escape(heading)}</h3><ul>{''.join(f'<li>{html.escape(line)}</li>' for line in lines)}</ul>"
        for heading, lines in notes
        if lines
    )
    style, script = ((here / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{style}</style></head><body>"
        f"<h1>{html.escape(title)}</h1>{_table(table, hides_columns)}{remarks}"
        '<div id="pictures"></div>'
        f"<script>{plotly}</script>"
        f'<script id="data" type="application/json">{in_script}</script>'
        f"<script>{script}</script></body></html>\n"
    )


def _table(table: Rows, hides_columns: bool) -> str:
    """The table with the raw numbers to sort by, the best of each column bold.

    `data-rank` says how important a column is; page.js hides the last ones where there is no room.
    """
    ranks = {name: rank for rank, name in enumerate(table.ranked) if hides_columns and rank >= FEWEST}
    tags = [""] * table.num_names + [f' data-rank="{ranks[name]}"' if name in ranks else "" for name in table.names]
    head = "".join(f'<th tabindex="0"{tag}>{html.escape(title)}</th>' for title, tag in zip(table.titles, tags))
    rows = []
    for number, (texts, raw) in enumerate(zip(table.cells, table.numbers)):
        row = [f"<td>{html.escape(text)}</td>" for text in texts[: table.num_names]]
        for text, value, best in zip(texts[table.num_names :], raw, table.best):
            sorted_by = "" if value is None or value != value else f"{value!r}"
            bold = ' class="best"' if number in best else ""
            row.append(f'<td data-number="{sorted_by}"{bold}>{html.escape(text)}</td>')
        rows.append(f"<tr>{''.join(row)}</tr>")
    return (
        '<section><p class="hint" hidden></p>'
        f'<div class="wide"><table data-names="{table.num_names}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        f"<p>{html.escape(table.caption)} Click a column's head to sort.</p></section>"
    )


def _panel(panel: Panel, picture: Picture, pool: ArrayPool) -> dict:
    """A panel as page.js wants it."""
    return {
        "title": panel.title or picture.title,
        "x": _axis(panel.x),
        "y": _axis(panel.y),
        "lines": panel.lines,
        "marks": panel.marks,
        "stars": panel.stars,
        "series": [
            {
                "label": series.label,
                "style": picture.order.index(series.label),
                "x": pool.place(series.x),
                "y": pool.place(series.y),
                "deviation": pool.place(series.deviation),
                "seeds": series.num_seeds,
                "mark": series.mark,
                "each": [pool.place(one) for one in series.each],
                "radius": series.radius,
            }
            for series in panel.series
        ],
    }


def _axis(axis: Axis) -> dict:
    return {"title": axis.title, "unit": axis.unit, "log": axis.log}


def _number(value: float) -> float | int | None:
    """Short and exact enough to draw; null for what is not finite, a gap in the line."""
    if value != value or value in (float("inf"), float("-inf")):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short == int(short) else short
