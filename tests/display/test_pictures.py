"""Pictures: written whole, not blank, for the shapes that occur; characters that no font has are said once."""

import math
from pathlib import Path

import numpy as np
import pytest

from fedcomp.display import figure, partition_plot, units
from fedcomp.display.curve_plot import plot_curve
from fedcomp.display.partition_plot import partition_figure, plot_partition
from fedcomp.display.slowest_plot import MOST, plot_slowest
from tests.looped import looped
from tests.raising import raising
from tests.thorough import thorough

LINES = [
    {"round": r, "test/accuracy": 0.1 + 0.04 * r, "test/loss": 2 / (r + 1), "bits/uplink": 10 * r, "bits/total": 90 * r}
    for r in range(20)
]


def assert_drawn(path: Path) -> None:
    """The picture is there, alone, and holds something."""
    from matplotlib.image import imread

    assert list(path.parent.iterdir()) == [path]
    assert imread(path).std() > 0.02


def test_curve_of_accuracy(tmp_path: Path) -> None:
    plot_curve(LINES, tmp_path / "curve.png", "sign on MNIST", 61_706)
    assert_drawn(tmp_path / "curve.png")


@pytest.mark.parametrize(
    "lines",
    [
        [{**line, "test/loss": math.nan if line["round"] > 3 else 1.0} for line in LINES],
        [{**line, "test/loss": math.nan} for line in LINES],
        [{**line, "bits/uplink": 0, "bits/total": 0} for line in LINES],
        LINES[:1],
        LINES[1:2],
    ],
    ids=["diverged", "all NaN", "no bits", "round 0 only", "one line"],
)
def test_curve_of_loss_in_odd_cases(tmp_path: Path, lines: list[dict[str, float]]) -> None:
    lines = [{key: value for key, value in line.items() if key != "test/accuracy"} for line in lines]
    plot_curve(lines, tmp_path / "curve.png", "", 1)
    assert_drawn(tmp_path / "curve.png")


@pytest.mark.parametrize("shrinks", [1.0, 0.1], ids=["linear", "over decades"])
def test_curve_of_a_metric_of_its_own(tmp_path: Path, shrinks: float) -> None:
    lines = [{key: line[key] for key in ("round", "bits/uplink", "bits/total")} for line in LINES]
    lines = [{**line, "test/distance": 0.5 * shrinks**index} for index, line in enumerate(lines)]
    plot_curve(lines, tmp_path / "curve.png", "power iteration", 784)
    assert_drawn(tmp_path / "curve.png")


@looped(
    "low, high, wanted",
    [
        (386e3, 771e3, ["400 kbit", "600 kbit"]),
        (11.3e6, 11.34e6, ["11.3 Mbit", "11.32 Mbit", "11.34 Mbit"]),
        (14e3, 771e3, ["30 kbit", "100 kbit", "300 kbit"]),
        (3e5, 6e6, ["500 kbit", "1 Mbit", "2 Mbit", "5 Mbit"]),
    ],
)
def test_ticks_of_bits_are_few_and_differ(low: float, high: float, wanted: list[str]) -> None:
    axes = figure.new_figure(3, 2).add_subplot()
    axes.plot([low, high], [0, 1])
    figure.log_axis(axes, "x", units.bits)
    begin, end = axes.get_xlim()
    ticks = [tick for tick in axes.xaxis.get_majorticklocs() if begin <= tick <= end]
    assert axes.xaxis.get_major_formatter().format_ticks(ticks) == wanted


def test_a_long_label_is_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    monkeypatch.setattr(figure, "save", lambda picture, path: kept.append(picture))
    plot_curve(LINES, tmp_path / "curve.png", "a long label of a method, " * 5, 61_706)
    (picture,) = kept
    picture.draw_without_rendering()
    for title in (picture.axes[0]._left_title, *picture.axes[0].texts):
        assert title.get_window_extent().x1 < picture.bbox.x1


@looped(
    "label, drawn",
    [("top $x_{k$ of", r"top \$x_{k\$ of"), ("top $x_{k}$", "top $x_{k}$"), ("5 $ or", r"5 \$ or"), ("a", "a")],
)
def test_math_that_is_none_is_drawn_as_written(tmp_path: Path, label: str, drawn: str) -> None:
    assert figure.drawable(label) == drawn
    if drawn.count("\\$") > 1:  # one is drawn too
        plot_curve(LINES[:3], tmp_path / "curve.png", label, 61_706)


@pytest.mark.parametrize("shape", [(100, 10), *thorough([(10, 10), (100, 100), (1, 2), (10, 1), (300, 1)])])
def test_partition(tmp_path: Path, shape: tuple[int, int]) -> None:
    counts = np.random.default_rng(0).integers(0, 400, shape)
    counts[0] = 0
    plot_partition(counts, tmp_path / "partition.png", [f"class {c}" for c in range(shape[1])], "Dirichlet(0.1)")
    assert_drawn(tmp_path / "partition.png")


def test_a_partition_that_was_drawn_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts, first, again = np.arange(6).reshape(3, 2), tmp_path / "first.png", tmp_path / "again.png"
    plot_partition(counts, first, title="kept")
    monkeypatch.setattr(partition_plot, "partition_figure", raising(LookupError()))
    plot_partition(counts, again, title="kept")
    assert again.read_bytes() == first.read_bytes()
    for others in ({}, {"title": "other"}, {"title": "kept", "below": "line"}, {"title": "kept", "class_names": "ab"}):
        with pytest.raises(LookupError):
            plot_partition(counts, again, **others)
    for other, path in ((counts.reshape(2, 3), again), (counts + 1, again), (counts, tmp_path / "other.pdf")):
        with pytest.raises(LookupError):
            plot_partition(other, path, title="kept")


def test_the_line_under_a_partition_is_within_the_picture() -> None:
    line = "mean label entropy of a client 0.461 nats (0.000 to 1.108); pooled 2.302"
    picture = partition_figure(np.ones((3, 2), int), (), "", line)
    picture.draw_without_rendering()
    (shown,) = [text for text in picture.texts if "entropy" in text.get_text()]
    assert shown.get_text().split() == line.split()
    place = shown.get_window_extent()
    assert picture.bbox.x0 <= place.x0 < place.x1 <= picture.bbox.x1


def test_a_picture_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot write"):
        plot_partition(np.ones((4, 3)), tmp_path / "file" / "p.png", [], "")


def test_missing_glyphs_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.png", "b.pdf"):
        drawn = figure.new_figure(1, 1)
        drawn.suptitle("a\ue0a1\ue0a2")  # private use: in no font
        figure.save(drawn, tmp_path / name)
    assert capsys.readouterr().err == "pictures show boxes for \ue0a1\ue0a2: matplotlib has no font with them\n"


def test_few_clients_and_many(tmp_path: Path) -> None:
    for number, counts in enumerate((np.array([3, 0, 5]), np.arange(MOST + 20))):
        path = tmp_path / f"{number}.png"
        plot_slowest(counts, path, "a run")
        assert path.read_bytes().startswith(b"\x89PNG")
