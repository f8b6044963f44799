"""Which columns are shown: those asked for, else those that fit into a paper or a window."""

import csv
import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fedcomp.records.reader import read_runs
from fedcomp.reporting import page
from fedcomp.reporting.__main__ import main
from fedcomp.reporting.group import group
from fedcomp.reporting.tables import formats, latex, table
from fedcomp.reporting.tables.rows import Rows
from fedcomp.reporting.tables.target import parse_target
from tests.looped import looped
from tests.records.synthetic_runs import MakeRun
from tests.refused import one_line_error

CHROMIUM = ("chromium", "google-chrome")


@pytest.fixture
def wide(make_run: MakeRun, tmp_path: Path) -> Rows:
    """Every kind of column, as a long grid with a target has them."""
    accuracies = [0.1 + 0.05 * step for step in range(13)]
    paper = {"paper/bpp/uplink": 0.956, "paper/bits/total": 32_956.0, "expected/accuracy": 0.5}
    for seed in (0, 1):
        make_run("sign", seed, [value + 0.01 * seed for value in accuracies])
        config = {"label": "the largest 3 % of entries, with error feedback"}
        make_run("topk", seed, accuracies, config=config, extra={"bpp/uplink": 1.158, **paper})
    groups = group(read_runs([tmp_path]))
    return table.build(groups, parse_target("0.6", groups))


def test_the_columns_asked_for_in_their_order(wide: Rows) -> None:
    own = wide.named("bits_total, test/accuracy,seeds")
    assert own.titles == ["method", "total bits", "test accuracy (%)", "seeds"]
    whole = [dict(zip(wide.titles, row)) for row in wide.cells]
    assert own.cells == [[row[title] for title in own.titles] for row in whole]
    assert wide.named("seconds").titles == ["method", "time"]


@looped(
    "text, said",
    [
        ("speed", "--columns speed: no such column in this table, allowed are test_accuracy, best_test_accuracy"),
        (",", "no such column"),
        ("seeds,seeds", "a column is named twice"),
    ],
)
def test_a_wrong_column_is_one_clear_line(wide: Rows, text: str, said: str) -> None:
    with one_line_error(said):
        wide.named(text)


@pytest.mark.parametrize("width", [60, 80, 120, 300])
def test_a_terminal_shows_what_fits_and_says_what_it_leaves_out(wide: Rows, width: int) -> None:
    from rich.console import Console

    shown = formats.fitting(wide, width, "; --columns chooses")
    assert shown.names[0] == "test_accuracy"
    console = Console(width=width, file=io.StringIO())
    console.print(formats.to_rich(shown, width))
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    numbers = [cell for row in shown.cells for cell in row[shown.num_names :]]
    assert all(cell in text for cell in numbers), "no number is broken, and none is cut off"
    said = " ".join(text.split())
    left_out = [name for name in wide.names if name not in shown.names]
    assert (
        (f"Left out to fit {width} characters: {', '.join(left_out)}; --columns" in said)
        == (width < 300)
        == bool(left_out)
    )


def test_latex_shows_what_fits_and_says_what_it_leaves_out(wide: Rows) -> None:
    assert latex.table_width(wide) > latex.PAPER
    shown = latex.fitting(wide)
    assert latex.table_width(shown) <= latex.PAPER
    first = ["test_accuracy", "rounds_to_target", "bits_to_target"]
    assert [name for name in wide.names if name in first] == [name for name in shown.names if name in first]
    assert "seconds" not in shown.names
    assert "Left out to fit 345 pt: seconds; --columns chooses." in latex.to_latex(shown, ["seconds"])
    assert "Left out" not in latex.to_latex(wide)


def test_the_most_important_columns_stay_however_narrow_it_is(wide: Rows) -> None:
    shown = latex.fitting(wide, 0.0)
    assert shown.names == ["test_accuracy", "rounds_to_target", "bits_to_target"]
    every = latex.fitting(wide, 10_000.0)
    assert every.names == wide.names


def test_widths_are_those_that_pdflatex_measured() -> None:
    """\\the\\wd of an \\sbox in a 10 pt article; each within 3 %."""
    words = {"num_candidates=256": 91.7, "not reached": 50.9, "DoubleSqueeze": 65.1, "BiCompFL-GR-Adaptive": 110.3}
    figures = {"test accuracy (%)": 77.0, "91.12 ± 1.79": 55.0, "1.16 (0.956)": 51.7, "47.9 Mbit": 42.5}
    for text, wanted in {**words, **figures, "mean of last 10 (%)": 86.4}.items():
        assert latex.text_width(text) == pytest.approx(wanted, rel=0.03), text


@pytest.mark.slow
@pytest.mark.program("pdflatex")
def test_pdflatex_sets_the_table_within_the_text(wide: Rows, tmp_path: Path) -> None:
    for name, shown in (("whole", wide), ("fitting", latex.fitting(wide))):
        text = latex.to_latex(shown)
        box = rf"\newsavebox{{\own}}\sbox{{\own}}{{{text}}}\typeout{{WIDTH \the\wd\own}}\usebox{{\own}}"
        document = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{box}\end{{document}}"
        (tmp_path / f"{name}.tex").write_text(document.replace("}{% ", "}{%\n% "))
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", f"{name}.tex"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
        (width,) = map(float, re.findall(r"WIDTH ([\d.]+)pt", done.stdout))
        assert width == pytest.approx(latex.table_width(shown), rel=0.03)
        assert (width <= latex.PAPER) == (name == "fitting")


@pytest.mark.usefixtures("no_pictures")
def test_the_command_takes_columns(make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run("sign", 0, [0.1, 0.8])
    out = tmp_path / "out"
    assert main([str(tmp_path), "--out", str(out), "--columns", "bpp_uplink,test_accuracy"]) == 0
    assert "--columns chooses" not in capsys.readouterr().out
    assert (out / "table.md").read_text().startswith("| method | uplink | test accuracy (%) |\n")
    assert r"method & uplink & " in (out / "table.tex").read_text()
    assert "seconds" in next(csv.reader((out / "table.csv").read_text().splitlines()))  # CSV has all
    assert "data-rank" not in (out / "report.html").read_text().split("<script>")[0]


def test_the_page_ranks_its_columns_and_has_a_place_for_the_hint(wide: Rows) -> None:
    text = page.to_html("demo", wide, [], [])
    head = re.findall(r'<th tabindex="0"(?: data-rank="(\d+)")?>([^<]*)</th>', text)
    assert [title for _, title in head] == wide.titles
    ranks = {title: rank for rank, title in head}
    assert ranks["method"] == ranks["test accuracy (%)"] == ""  # never hidden
    assert sorted(int(rank) for rank in ranks.values() if rank) == list(range(3, len(wide.names)))
    assert ranks["time"] == str(len(wide.names) - 1)
    assert '<p class="hint" hidden></p><div class="wide"><table' in text


@pytest.mark.slow
@pytest.mark.program(*CHROMIUM)
@pytest.mark.parametrize(("width", "hides"), [(3000, False), (1400, True), (700, True)])
def test_a_browser_hides_what_does_not_fit_and_says_so(wide: Rows, tmp_path: Path, width: int, hides: bool) -> None:
    html = page.to_html("demo", wide, [], []).replace("max-width: 1280px", "max-width: 2900px")
    probe = "const b=document.querySelector('.wide');document.title=`${b.scrollWidth<=b.clientWidth+1}`;"
    (tmp_path / "report.html").write_text(html.replace("</body>", f"<script>{probe}</script></body>"))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", f"--window-size={width},900"]
    command = [next(filter(None, map(shutil.which, CHROMIUM))), *flags, (tmp_path / "report.html").as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    assert "<title>true</title>" in shown  # nothing is out of sight without a hint
    (hint,) = re.findall(r'<p class="hint"[^>]*>.*?</p>', shown)
    assert ("Hidden, since the window is too narrow:" in hint) is hides
    assert ("Show all columns" in hint) is hides
    assert (" time" in hint) is hides
    assert "<th tabindex" in shown
