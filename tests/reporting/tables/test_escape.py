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
    "text, wanted",
    [
        *[("a|b", r"a\|b"), ("a\nb\tc", "a b c"), ("97.31 ± 0.12", "97.31 ± 0.12"), (r"a\b", r"a\\b")],
        ("`code` *bold* [link](x)", r"\`code\` \*bold\* \[link\](x)"),
        ("top_k _all_", r"top_k \_all\_"),
        ("<b>x</b> & y", r"\<b\>x\</b\> &amp; y"),
        ("~5~ $5", r"\~5\~ \$5"),
        ("top $x_{k}$ *", r"top $x_{k}$ \*"),
    ],
)
def test_markdown(text: str, wanted: str) -> None:
    assert formats.escape_markdown(text) == wanted


@looped(
    "text, wanted", [("# a", r"\# a"), ("1. a", r"1\. a"), ("- a", r"\- a"), ("a # b", "a # b"), ("1.5 a", "1.5 a")]
)
def test_a_line_of_markdown_starts_no_heading_and_no_list(text: str, wanted: str) -> None:
    assert formats.escape_markdown_line(text) == wanted


@looped("text", ["=1+1", "+a", "-x", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_spreadsheet_takes_no_text_for_a_formula(text: str) -> None:
    assert formats.escape_csv(text) == f"'{text}"


@looped("text", ["-0.5", "+3", "1e-3", "-inf", "a=1", "topk", ""])
def test_numbers_and_other_text_stay(text: str) -> None:
    assert formats.escape_csv(text) == text


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
    with pytest.raises(ValueError, match=r"no run recorded a quality trian/loss; did you mean 'train/loss'\?"):
        parse_target("trian/loss=0.3", groups)
    with pytest.raises(ValueError, match="no run recorded a quality bits/total"):
        parse_target("bits/total=3", groups)
