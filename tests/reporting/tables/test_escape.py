"""Labels that Markdown, a spreadsheet, LaTeX or a terminal would interpret are shown as they were written."""

import csv
import io
from pathlib import Path

import pytest

from fedcomp.records.reader import read_runs
from fedcomp.reporting.__main__ import main
from fedcomp.reporting.group import group
from fedcomp.reporting.tables import formats, latex, table
from fedcomp.reporting.tables.target import parse_target
from tests.looped import looped
from tests.records.synthetic_runs import MakeRun


@looped(
    "escape, text, wanted",
    [
        *((formats.escape_markdown, text, text) for text in ("97.31 ± 0.12", "a # b")),
        (formats.escape_markdown, "a|b", r"a\|b"),
        (formats.escape_markdown, "a\nb\tc", "a b c"),
        (formats.escape_markdown, r"a\b", r"a\\b"),
        (formats.escape_markdown, "`code` *bold* [link](x)", r"\`code\` \*bold\* \[link\](x)"),
        (formats.escape_markdown, "top_k _all_", r"top_k \_all\_"),
        (formats.escape_markdown, "<b>x</b> & y", r"\<b\>x\</b\> &amp; y"),
        (formats.escape_markdown, "~5~ $5", r"\~5\~ \$5"),
        (formats.escape_markdown, "top $x_{k}$ *", r"top $x_{k}$ \*"),
        *((formats.escape_markdown_line, text, text) for text in ("a # b", "1.5 a")),
        *((formats.escape_markdown_line, f"{mark} a", rf"{mark[:-1]}\{mark[-1]} a") for mark in ("#", "1.", "-")),
        *((formats.escape_csv, text, f"'{text}") for text in ("=1+1", "+a", "-x", "@SUM(A1)", "\t=1", "\r=1")),
        *((formats.escape_csv, text, text) for text in ("-0.5", "+3", "1e-3", "-inf", "a=1", "topk", "")),
    ],
)
def test_text_that_would_be_a_heading_a_list_or_a_formula(escape, text: str, wanted: str) -> None:
    assert escape(text) == wanted


ODD = '=HYPERLINK("x", "a|b"), `c` <i>'


@pytest.mark.usefixtures("no_pictures")
def test_each_file_of_a_report(make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run("sign", 0, [0.1, 0.9], config={"label": ODD})
    make_run("topk", 0, [0.1, 0.8], config={"label": "[red]:100: x"})
    make_run("dense", 0, [0.1], state="failed", error="<b> | *boom* :100:")
    assert main([str(tmp_path), "--out", str(tmp_path / "r")]) == 0
    shown = capsys.readouterr().out
    assert ODD in shown
    assert "[red]:100: x" in shown
    assert "<b> | *boom* :100:" in shown
    rows = (tmp_path / "r" / "table.md").read_text().splitlines()
    assert rows[2].startswith(r'| =HYPERLINK("x", "a\|b"), \`c\` \<i\> | **90.00** |')
    assert rows[3].startswith(r"| \[red\]:100: x | 80.00 |")
    assert any(row.endswith(r"\<b\> \| \*boom\* :100:") for row in rows)
    written = list(csv.reader(io.StringIO((tmp_path / "r" / "table.csv").read_text())))
    assert [row[0] for row in written] == ["method", f"'{ODD}", "[red]:100: x"]
    assert "<i>" not in (tmp_path / "r" / "report.html").read_text().split("<script>")[0]


def test_latex_takes_no_name_for_an_option_or_a_dash(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("sign", 0, [0.1, 0.9], config={"label": "[3pt] --a *"})
    make_run("topk", 0, [0.1, 0.8], config={"label": r"\textbf{x} & y"})
    make_run("dense", 0, [0.1, 0.7], config={"label": "日本"})
    make_run("qsgd", 0, [0.1, 0.6], config={"label": "a\n\nb"})
    built = table.build(group(read_runs([tmp_path])))
    text = latex.to_latex(built)
    assert "\na  b & " in text  # a line break in a label breaks no row
    assert "\n| a  b | " in formats.to_markdown(built)
    assert "\n{[}3pt{]} -{}-a {*} & " in text
    assert "\n" + r"\textbackslash{}textbf\{x\} \& y & " in text
    assert "% ?? is 日本: lualatex and xelatex can set it, pdflatex cannot\n" in text


def test_what_stands_behind_a_bold_number_keeps_its_blank(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("sign", 0, [0.1, 0.9], extra={"bpp/uplink": 1.1, "paper/bpp/uplink": 1.0})
    make_run("topk", 0, [0.1, 0.8], extra={"bpp/uplink": 2.0})
    assert r"\textbf{1.10} (1.00)" in latex.to_latex(table.build(group(read_runs([tmp_path]))))


def test_targets_of_the_training_and_of_any_metric(make_run: MakeRun, tmp_path: Path) -> None:
    accuracies = [0.1, 0.2, 0.3]
    losses: list[dict[str, float]] = [{}, {"train/loss": 0.5}, {"train/loss": 0.3}]
    lines = [{"test/accuracy": accuracy, **loss} for accuracy, loss in zip(accuracies, losses)]
    make_run("sign", 0, [], lines=lines)
    groups = group(read_runs([tmp_path]))
    built = table.build(groups, parse_target("train/loss=0.3", groups))
    assert {"rounds to train loss 0.300", "bits to train loss 0.300"} < set(built.titles)
    assert (built.raw[0]["rounds_to_target"], built.raw[0]["bits_to_target"]) == (20, 66_000)
