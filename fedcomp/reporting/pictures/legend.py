"""Names in a legend and titles above panels: broken into lines that fit, and whether they leave room for the axes."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedcomp.display import figure, units
from fedcomp.reporting.pictures.picture import Picture

MOST_COLUMNS = 4
LEAST_LETTERS = 12
"""A name is broken into lines of so many characters, however narrow the picture is."""
LEAST_AXES = (0.6, 0.4)
"""Width and height in inches that the axes of a picture with a size must keep."""
AROUND = (0.6, 0.45)
"""Inches beside and below axes in a paper's column, for what is written there."""
PANEL_TITLE = 0.17
"""Inches of a line of a panel's title."""
TITLE_LETTER = 0.068
"""Inches of its letters' width."""


@dataclass(frozen=True)
class Letters:
    """Inches: the width of a letter, that of a line's sample beside its name, and the height of a line."""

    letter: float
    sample: float
    line: float


WIDE = Letters(0.065, 0.5, 0.18)
"""At 8 points."""
NARROW = Letters(0.052, 0.42, 0.16)
"""At 7 points, in a paper's column."""


@dataclass(frozen=True)
class Legend:
    """Names as a legend shows them.

    Attributes:
        texts: {label: its name in lines}. columns: names side by side.
        width, height: in inches.
    """

    texts: dict[str, str]
    columns: int
    width: float
    height: float


def legend(labels: Sequence[str], width: float, letters: Letters, most_columns: int = MOST_COLUMNS) -> Legend:
    """The legend of these labels within `width` inches."""
    most = max(LEAST_LETTERS, int((width - letters.sample) / letters.letter))
    texts = {label: figure.wrapped(label, most) for label in labels}
    lines = [line for text in texts.values() for line in text.split("\n")]
    own = letters.letter * max(map(len, lines), default=1) + letters.sample
    columns = max(1, min(most_columns, len(labels), int(width / own)))
    return Legend(texts, columns, own * columns, letters.line * -(-len(lines) // columns))


def panel_title(text: str, width: float) -> str:
    """A panel's title in lines that are no wider than its axes."""
    return figure.wrapped(text, max(LEAST_LETTERS, int(width / TITLE_LETTER)))


def of_column(picture: Picture) -> Legend:
    """The legend of a picture that has a size."""
    assert picture.size is not None
    if picture.legend == "below":
        return legend(picture.labels, picture.size[0], NARROW)
    width = picture.size[0] / 2 if picture.legend == "right" else picture.size[0] - AROUND[0]
    return legend(picture.labels, width, NARROW, most_columns=1)


def axes_room(picture: Picture) -> tuple[float, float]:
    """Width and height in inches that a picture with a size leaves to each of its axes."""
    assert picture.size is not None
    own, (width, height) = of_column(picture), picture.size
    rows, columns = picture.grid
    width -= own.width if picture.legend == "right" else 0.0
    height -= own.height if picture.legend == "below" else 0.0
    across = width / columns - AROUND[0]
    lines = max(len(panel_title(panel.title, across).splitlines()) for panel in picture.panels)
    return across, height / rows - AROUND[1] - PANEL_TITLE * lines


def check_room(picture: Picture) -> None:
    """Raise ValueError if a picture with a size has no room for its axes, or for the names beside or on them."""
    if picture.size is None:
        return
    own, room, (width, height) = of_column(picture), axes_room(picture), picture.size
    too_high = picture.legend not in ("below", "none") and own.height > height
    if room[0] < LEAST_AXES[0] or room[1] < LEAST_AXES[1] or too_high:
        panels = units.counted(len(picture.panels), "panel")
        what = f"figure {picture.name!r}: {width:g}x{height:g} inches have no room for {panels}"
        if picture.legend == "none":
            raise ValueError(f"{what}: give a larger size")
        raise ValueError(
            f"{what} and the names of {len(own.texts)} methods (legend={picture.legend}): give a larger size, shorter "
            "names (rename), or legend=none"
        )
