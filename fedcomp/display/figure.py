"""What all pictures share: colours, axes, units on ticks, and saving in one step.

Figures are made without pyplot: there is no global state, no display is needed, and nothing has to be closed.
"""

from __future__ import annotations

import math
import re
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedcomp.display import units
from fedcomp.records.atomic_write import atomic_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The colours of Okabe and Ito, which the colour-blind can tell apart, without yellow, which is faint on white."""
DASHES: tuple[str | tuple[int, tuple[float, ...]], ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
"""Line styles, for more lines than colours and for print in black and white."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
INK = "#333333"
GRID = "#E4E4E4"
DPI = 200
MISSING_GLYPH = re.compile(r"Glyph (\d+) ")
NO_ROOM = re.compile("constrained_layout not applied")
_WARNED: set[str] = set()
"""Characters without a glyph that this process has warned about."""


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of `width` x `height` inches with constrained layout."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI, layout="constrained", facecolor="white")


def is_math(text: str) -> bool:
    """Whether the text has math between dollars that matplotlib can parse."""
    from matplotlib.cbook import is_math_text
    from matplotlib.mathtext import MathTextParser

    if "$" not in text or not is_math_text(text):
        return False
    try:
        MathTextParser("path").parse(text)
    except ValueError:
        return False
    return True


def drawable(text: str) -> str:
    """A user's text with its dollars escaped, unless they enclose math that matplotlib can parse."""
    return text if is_math(text) else re.sub(r"(?<!\\)\$", r"\\$", text)


def wrapped(text: str, width: int) -> str:
    """A user's text in lines of at most `width` characters; text with math stays in one line."""
    return drawable(text if is_math(text) else textwrap.fill(text, width, break_long_words=False))


def style(axes: Axes, xlabel: str, ylabel: str) -> None:
    """Set labels, a light grid behind the data, and no box."""
    axes.set_xlabel(xlabel, fontsize=9, color=INK)
    axes.set_ylabel(ylabel, fontsize=9, color=INK)
    axes.tick_params(which="both", labelsize=8, colors=INK, length=3, width=0.6)
    axes.tick_params(which="minor", length=1.5)
    axes.grid(True, color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set(color=INK, linewidth=0.6)


def log_axis(axes: Axes, which: str, text: Callable[[float], str] | None = None, most: int = 8) -> None:
    """Make an axis logarithmic, with enough numbered ticks if it is short; call after the data is drawn.

    Args:
        which: x or y.
        text: formats a tick's value with its unit; None: plain numbers such as 0.03, 20, 10⁵.
        most: numbered ticks of powers of ten; of more only every second or third is numbered.
    """
    from matplotlib.ticker import FuncFormatter, Locator, LogLocator, MaxNLocator, NullFormatter, NullLocator

    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    per_decade: tuple[float, ...] = (
        (1.0, 2.0, 5.0) if high < (100 if text is None else 30) * low else (1.0,)
    )  # ticks with units are wide
    if high < 8 * low and text is None:
        per_decade = tuple(map(float, range(1, 10)))
    most = max(most, 2)
    candidates: tuple[tuple[float, ...], ...] = (per_decade, (1.0, 3.0), (1.0, 2.0, 5.0), (1.0,))
    numbers = {digits: _num_ticks(low, high, digits) for digits in candidates}
    several = next((digits for digits in candidates if 1 < numbers[digits] <= most), None)
    several = several or next((digits for digits in candidates if numbers[digits] > 1), None)
    major: Locator = LogLocator(subs=several or per_decade, numticks=most)
    minor: Locator = LogLocator(subs=(2.0, 5.0), numticks=30)
    if several is None:  # on so short an axis LogLocator sets too many ticks
        major, minor = MaxNLocator(nbins=5 if text is None else 3, steps=[1, 2, 5, 10]), NullLocator()
    axis.set_major_locator(major)
    axis.set_major_formatter(FuncFormatter(lambda count, _: _tick(count, text)))
    axis.set_minor_locator(minor)
    axis.set_minor_formatter(NullFormatter())


def integer_axis(axes: Axes, which: Literal["x", "y"]) -> None:
    """Set ticks at whole numbers only, for rounds."""
    axes.locator_params(axis=which, integer=True, min_n_ticks=1)


def can_draw() -> bool:
    """Whether matplotlib is installed, without importing it: that takes half a second."""
    return find_spec("matplotlib") is not None


def save(figure: Figure, path: Path) -> None:
    """Write the figure atomically, in the suffix's format (.png, .pdf, .pgf); the same figure gives the same bytes.

    Raises ValueError: the file cannot be written, or LaTeX cannot set its text (.pgf).
    """
    from matplotlib import rc_context

    undated = {".pdf": {"CreationDate": None}, ".png": {"Software": None}}
    # matplotlib's .pgf takes no metadata
    metadata: dict[str, Any] = {"metadata": undated[path.suffix]} if path.suffix in undated else {}
    # 42: fonts that conferences accept
    fonts = _in_serif(figure) if path.suffix == ".pgf" else rc_context({"pdf.fonttype": 42})
    with atomic_path(path) as temporary, fonts, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with _laid_out(figure) if path.suffix == ".png" else nullcontext():
            figure.savefig(temporary, format=path.suffix.removeprefix("."), **metadata)
        crowded = any(one.get_window_extent().width > figure.bbox.width for one in figure.legends)  # a long word, math
    missing = set()
    for warning in caught:
        glyph = MISSING_GLYPH.match(str(warning.message))
        if glyph:
            missing.add(chr(int(glyph[1])))
        elif NO_ROOM.match(str(warning.message)):
            crowded = True
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if crowded:
        width, height = figure.get_size_inches()
        print(f"{path}: {width:g}x{height:g} inches have no room for all its text", file=sys.stderr, flush=True)
    if missing - _WARNED:
        _WARNED.update(missing)
        letters = "".join(sorted(missing))
        print(f"pictures show boxes for {letters}: matplotlib has no font with them", file=sys.stderr, flush=True)


@contextmanager
def _laid_out(figure: Figure) -> Iterator[None]:
    """Within it the figure's layout is that for pixels, and drawn once: matplotlib draws all twice to lay it out."""
    engine = figure.get_layout_engine()
    if engine is not None and figure.axes:
        engine.execute(figure)
        figure.set_layout_engine(None)
    try:
        yield
    finally:
        figure.set_layout_engine(engine)


@contextmanager
def _in_serif(figure: Figure) -> Iterator[None]:
    """Within it the figure's text is in the main font of the document that inputs a .pgf."""
    from matplotlib import rc_context
    from matplotlib.text import Text

    families = {text: text.get_fontfamily() for text in figure.findobj(Text)}
    try:
        for text in families:
            text.set_fontfamily("serif")
        with rc_context({"pgf.texsystem": latex() or "pdflatex", "pgf.rcfonts": False, "font.family": "serif"}):
            yield
    finally:
        for text, family in families.items():
            text.set_fontfamily(family)


def latex() -> str | None:
    """The LaTeX that is installed, which measures the text of a .pgf; None: there is none."""
    return next((name for name in ("pdflatex", "lualatex", "xelatex") if shutil.which(name)), None)


def _num_ticks(low: float, high: float, per_decade: tuple[float, ...]) -> int:
    """Number of ticks `digit * 10^k` on an axis from `low` to `high`."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return sum(low <= digit * 10.0**decade <= high for decade in decades for digit in per_decade)


def _tick(count: float, text: Callable[[float], str] | None) -> str:
    """A tick's text without trailing zeros: 1 kbit, 20 kbit; 0.03, 20, 10⁵."""
    if text is not None and count > 0:
        number, _, unit = text(count).partition(" ")
        factor = 1000.0 ** round(math.log(count / float(number), 1000))  # a short axis needs all digits
        return f"{count / factor:g} {unit}"
    return f"{count:g}" if 1e-3 <= abs(count) < 1e4 else units.power(count)
