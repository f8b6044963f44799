"""Pictures for a paper: size, ends of axes, order, names, legend, and what of an axis is shown."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.text import Text

import fedcomp
from fedcomp.display.figure import save
from fedcomp.records.reader import read_runs
from fedcomp.reporting.__main__ import main
from fedcomp.reporting.group import group
from fedcomp.reporting.pictures import draw
from fedcomp.reporting.pictures.curves import slug
from fedcomp.reporting.pictures.figure_entry import asked, parse
from fedcomp.reporting.pictures.figures import asked_picture, build
from fedcomp.reporting.pictures.picture import Axis, Panel, Picture, Series
from fedcomp.reporting.pictures.view import marked_places, view
from tests.looped import looped
from tests.records.synthetic_runs import MakeRun
from tests.refused import one_line_error

ENTRY = {"name": "fig", "x": "uplink", "y": "test/accuracy"}


@pytest.fixture
def runs(make_run: MakeRun, tmp_path: Path) -> Path:
    """Accuracies of 10 %, 50 % and, at last, 90 % (sign), 92 % (dense) and 94 % (ours)."""
    for method, last in (("dense", 0.92), ("sign", 0.9), ("ours", 0.94)):
        for seed in (0, 1):
            values = enumerate((0.1, 0.5, last - 0.01, last))
            lines = [{"test/accuracy": value, "bits/uplink": 1000 * at, "round": 10 * at} for at, value in values]
            make_run(method, seed, [], lines=lines, config={"label": method})
    return tmp_path


def panel(*ends: float, **axis) -> Panel:
    lines = [
        Series(f"m{number}", np.array([1.0, 10, 100]), np.array([10, 50, end]), np.full(3, np.nan), 1)
        for number, end in enumerate(ends)
    ]
    return Panel("", Axis("uplink bits", "bits", True), Axis("accuracy", "percent", **axis), tuple(lines))


def test_an_axis_shows_where_methods_differ_and_says_what_it_leaves_out() -> None:
    x, y, cut = view(panel(90, 94))
    assert cut == "below 81.5 % not shown"
    assert (y.low, y.high) == (81.5, pytest.approx(94.625))
    assert x.low == pytest.approx(80)
    ends = {"a": np.array([9, 3, 0.1]), "b": np.array([9, 3, 0.3])}
    falling = [Series(name, np.arange(3.0), end, np.full(3, np.nan), 1) for name, end in ends.items()]
    _, y, cut = view(Panel("", Axis("round"), Axis("loss"), tuple(falling)))
    assert cut == "above 1.2 not shown"
    assert (y.low, y.high) == (pytest.approx(0.045), 1.2)


@looped("rises, where", [(3.0, ("right", "bottom")), (95.0, ("left", "top"))])
def test_what_is_left_out_is_said_where_no_line_is(rises: float, where: tuple[str, str]) -> None:
    given = (("m0", [1, 2, 3, 100], [10, 90, 90, 90]), ("m1", [1, rises, rises + 1, 100], [10, 10, 92, 92]))
    lines = [Series(name, np.array(x), np.array(y), np.full(4, np.nan), 1) for name, x, y in given]
    one = Panel("", Axis("round"), Axis("accuracy", "percent"), tuple(lines))
    (axes,) = draw.sheet(Picture("a", "a", "", (one,), 1, ("m0", "m1"))).axes
    (said,) = [text for text in axes.texts if "not shown" in text.get_text()]
    assert (said.get_ha(), said.get_va()) == where


@looped("own", [panel(90), panel(30, 94), panel(90, 94, log=True), panel(90, 94, low=0.0)])
def test_an_axis_stays_whole(own: Panel) -> None:
    assert view(own) == (own.x, own.y, "")


def test_markers_of_lines_that_end_together_stand_apart() -> None:
    places = np.logspace(3, 6, 60)
    marked = [marked_places(places, True, number, 6) for number in range(6)]
    assert len({place for own in marked for place in own}) == 18
    assert all(np.diff(np.log10(places[own])) == pytest.approx([1, 1], abs=0.06) for own in marked)
    assert marked_places(np.array([5.0]), True, 0, 1) == [0]
    assert set(marked_places(np.array([0.0, 1.0]), False, 1, 2)) <= {0, 1}


def test_legend_and_picture_have_the_same_markers(runs: Path) -> None:
    drawn = draw.sheet(asked_picture(asked([], 1), group(read_runs([runs]))))
    lines = {line.get_label(): line for line in drawn.axes[0].lines}
    legend = dict(zip([text.get_text() for text in drawn.legends[0].get_texts()], drawn.legends[0].legend_handles))
    assert list(legend) == ["dense", "ours", "sign"]
    for label, handle in legend.items():
        assert handle.get_marker() == lines[label].get_marker() != "None"


def test_an_entry_for_a_paper(runs: Path) -> None:
    entry = ENTRY | {"size": "3.3x2.2", "ylim": "0.8:0.95", "xlim": [1500, None], "order": ["ours"], "log_x": False}
    entry |= {"rename": {"ours": "FedX", "sign": "SignSGD"}, "legend": "lower right"}
    picture = build(parse(entry), group(read_runs([runs])))
    (own,) = picture.panels
    assert [one.label for one in own.series] == ["FedX", "dense", "SignSGD"]
    assert (own.y.low, own.y.high, own.x.low, own.x.high, own.x.log) == (80, 95, 1500, None, False)
    drawn = draw.sheet(picture)
    assert tuple(drawn.get_size_inches()) == (3.3, 2.2)
    (axes,) = drawn.axes
    assert axes.get_ylim() == (80, 95)
    assert axes.get_xlim()[0] == 1500
    assert axes.get_xscale() == "linear"
    (legend,) = (one.get_legend() for one in draw.sheet(replace(picture, order=("SignSGD", "FedX", "dense"))).axes)
    assert [text.get_text() for text in legend.get_texts()] == ["SignSGD", "FedX", "dense"]
    assert max(text.get_fontsize() for text in [axes.xaxis.label, axes.yaxis.label, *axes.get_xticklabels()]) <= 8


def test_a_method_keeps_its_name_when_a_figure_names_lines_anew(make_run: MakeRun, tmp_path: Path) -> None:
    for method in ("randk", "sign"):
        for clients in (1, 10):
            config = {"num_clients": clients, "compressor": {"_target_": f"fedcomp.compressor.{method}.C"}}
            make_run(method, 0, [], lines=[{"mse": 1.0}], config=config, folder=f"{method}{clients}")
    entry = {"name": "f", "x": "num_clients", "y": "mse", "rename": {"sign": "SignSGD"}, "order": ["SignSGD"]}
    picture = build(parse(entry), group(read_runs([tmp_path])))
    assert [one.label for one in picture.panels[0].series] == ["SignSGD", "randk"]
    assert picture.order[:2] == ("SignSGD", "randk")


@looped(
    "options, said",
    [
        ({"size": "3.3"}, "size is '3.3', but must be WIDTHxHEIGHT in inches from 0.5 to 50, such as 3.3x2.2"),
        ({"size": "0x2"}, "size is '0x2', but must be"),
        ({"ylim": "0.9:0.8"}, "ylim is '0.9:0.8', but must be LOW:HIGH"),
        ({"ylim": 0.9}, "ylim is 0.9, but must be LOW:HIGH"),
        (
            {"ylim": "80:90"},
            r"ends 80:90 of test accuracy \(%\): an accuracy is a fraction, for 80 to 90 % give 0.8:0.9",
        ),
        ({"ylim": "0:90"}, "ends 0:90 of test accuracy"),
        (
            {"xlim": "0:1e6"},
            "uplink bits: this axis is logarithmic, without 0: leave it out, or add log_x=false to the figure",
        ),
        ({"ylim": "-1:0.5", "log_y": True}, r"ends -1:0.5 of test accuracy .*, or add log_y=false"),
        ({"xlim": "nan:1"}, "xlim is 'nan:1', but must be LOW:HIGH"),
        ({"panel": "compressor.fraction"}, "panel is for kind=last, and this one has kind=curve"),
        ({"x": "mse", "average": True}, "average is for kind=curve, and this one has kind=last"),
        ({"legend": "top"}, "legend is 'top', allowed are below, right, none, best"),
        ({"order": ["our"]}, "no method is called 'our'; did you mean 'ours'"),
        ({"rename": {"ours": "sign"}}, "two methods cannot have one name: ours and sign would both be sign"),
        ({"rename": "ours"}, "rename is 'ours', but must say for each label its name"),
        ({"y": "test/acuracy"}, r"is empty: no finished run has test/acuracy; did you mean 'test/accuracy'\?"),
        ({"x": "uplnk"}, "is empty: no finished run has uplnk; did you mean 'uplink'"),
        ({"x": "seconds"}, "no finished run has time/total: seconds need a network"),
        ({"y": "test/accuracy,round"}, r"\(there are: .*\); several are a list, y=\[a,b\]"),
    ],
)
def test_wrong_entries(runs: Path, options: dict, said: str) -> None:
    with one_line_error(said):
        asked_picture(ENTRY | options, group(read_runs([runs])))


def test_the_command_draws_it_and_orders_the_tables(runs: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "paper"
    words = ["--order", "sign,dense", "--rename", "ours=FedX", "--out", str(out)]
    assert main(["--figure", "x=rounds", "y=test/accuracy", str(runs), "--ylim", "0.8:0.95", *words]) == 0
    assert {path.name for path in out.glob("figure.*")} >= {"figure.png", "figure.pdf"}
    rows = [line.split(",")[0] for line in (out / "table.csv").read_text().splitlines()]
    assert rows[1:] == ["sign", "dense", "FedX"]
    assert ".pgf" in capsys.readouterr().out
    for wrong, said in (
        (["--ylim", "0.8:0.9"], "--ylim is for --figure"),
        (["--rename", "ours"], "--rename ours: give OLD=NEW"),
        (["--rename", "ours="], "--rename ours=: give OLD=NEW"),
        (["--figure", "y=none/such"], "figure 'figure' is empty: no finished run has none/such (there are: "),
        (["--order", "theirs"], "no method is called 'theirs'"),
    ):
        assert main([str(runs), *wrong]) == 2
        assert said in capsys.readouterr().err


def test_pgf_is_written_where_there_is_a_latex(monkeypatch) -> None:
    from fedcomp.reporting import build

    picture = Picture("p", "", "", (), 1, (), (3.3, 2.2))
    for latex, expected in ((None, ["png", "pdf"]), ("pdflatex", ["png", "pdf", "pgf"])):
        monkeypatch.setattr(build, "latex_program", lambda latex=latex: latex)
        assert build.formats_of(picture) == expected


def test_a_name_without_a_place_to_break_it_is_said_to_be_cut(runs: Path, tmp_path: Path, capfd) -> None:
    path = tmp_path / "f.png"
    for name, said in (("ours", ""), ("ours" * 20, f"{path}: 3.3x2.2 inches have no room for all its text\n")):
        save(fedcomp.figure(runs, rename={"ours": name}), path)
        assert capfd.readouterr().err == said


@pytest.mark.program("pdflatex", "lualatex", "xelatex")
def test_pgf_is_latex(runs: Path, tmp_path: Path) -> None:
    draw.draw(asked_picture(asked([], 1), group(read_runs([runs]))), [tmp_path / "f.pgf"])
    written = (tmp_path / "f.pgf").read_text()
    assert "pgfpicture" in written
    assert "\\rmfamily" in written
    assert "\\sffamily" not in written


def test_a_figure_that_cannot_be_saved_keeps_its_fonts(runs: Path, tmp_path: Path, monkeypatch) -> None:
    drawn = fedcomp.figure(runs)
    before = {text: text.get_fontfamily() for text in drawn.findobj(Text)}
    within: set[str] = set()

    def fails(*_: object, **__: object) -> None:
        within.update(*(text.get_fontfamily() for text in drawn.findobj(Text)))
        raise ValueError("no LaTeX")

    monkeypatch.setattr(drawn, "savefig", fails)
    with pytest.raises(ValueError, match="no LaTeX"):
        save(drawn, tmp_path / "f.pgf")
    assert within == {"serif"}
    assert {text: text.get_fontfamily() for text in before} == before


LONG = "a name so long that a column of a paper cannot hold it in one line"


def test_long_names_stand_in_several_lines_within_the_picture(runs: Path, tmp_path: Path) -> None:
    entry = {"rename": {"ours": LONG, "sign": 4 * f"{LONG} "}}
    groups = group(read_runs([runs]))
    for options in ({"size": "3.3x3"}, {"size": "6x3", "legend": "right"}, {}):
        drawn = draw.sheet(asked_picture(ENTRY | entry | options, groups))
        save(drawn, tmp_path / "f.png")  # lays it out
        (legend,) = drawn.legends
        assert [text.get_text().replace("\n", " ") for text in legend.get_texts()][1] == LONG
        box, page = legend.get_window_extent(), drawn.bbox
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= page.x1
        assert all(axes.bbox.height >= 0.35 * drawn.dpi for axes in drawn.axes)
        assert not any(box.overlaps(axes.get_tightbbox()) for axes in drawn.axes)


def test_long_settings_are_lines_above_their_panel_and_names_of_files_apart(make_run: MakeRun, tmp_path: Path) -> None:
    for number in range(3):
        columns = [*(f"column_{place}" for place in range(12)), f"last_{number}"]  # which begin alike
        config = {"dataset": {"_target_": "fedcomp.dataset.tables.csv.load", "features": columns}}
        for method in ("dense", "sign"):
            make_run(method, 0, [0.1, 0.5, 0.6], config=config, folder=f"{method}{number}")
    groups = group(read_runs([tmp_path]))
    names = {slug(one.place) for one in groups}
    assert len(names) == 3
    assert max(map(len, names)) == 120
    for size in (None, "6.8x6"):
        drawn = draw.sheet(asked_picture(ENTRY | {"size": size}, groups))
        save(drawn, tmp_path / "f.png")
        for axes in drawn.axes:
            title = axes._left_title.get_window_extent()
            assert title.width <= axes.bbox.width + 0.3 * drawn.dpi
            assert title.y1 <= drawn.bbox.y1
            assert not any(title.overlaps(other.bbox) for other in drawn.axes)


@looped(
    "options, said",
    [
        ({"size": "3.3x1.2", "rename": {"ours": LONG}}, "3.3x1.2 inches have no room for 1 panel and the names of 3"),
        ({"size": "2x2", "legend": "right", "rename": {"ours": LONG}}, r"methods \(legend=right\): give a larger size"),
        ({"size": "2x0.9", "legend": "best", "rename": {"ours": 3 * LONG}}, r"\(legend=best\)"),
        ({"size": "1x1", "legend": "none"}, "1x1 inches have no room for 1 panel: give a larger size"),
    ],
)
def test_a_picture_without_room_for_its_axes_is_refused(runs: Path, options: dict, said: str) -> None:
    with one_line_error(said):
        asked_picture(ENTRY | options, group(read_runs([runs])))


def test_figures_from_python(runs: Path) -> None:
    drawn = fedcomp.figure(runs, ylim=(0.8, 0.95), size=(3, 2), rename={"ours": "FedX"}, legend="right")
    assert drawn.axes[0].get_ylim() == (80, 95)
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["dense", "FedX", "sign"]
    drawn.axes[0].set_title("mine")
    backwards = fedcomp.figure(reversed(fedcomp.load_runs(runs)))
    assert [text.get_text() for text in backwards.legends[0].get_texts()] == ["sign", "ours", "dense"]
    several = fedcomp.figure(fedcomp.load_runs(runs), x="rounds", y=["test/accuracy"], legend="none")
    assert several.legends == []
    with pytest.raises(ValueError, match=r"figure 'figure' has 'colour', allowed are"):
        fedcomp.figure(runs, colour="red")
    with pytest.raises(ValueError, match="there is no run to report"):
        fedcomp.figure([])
