"""The page, complete in itself, with nothing a label can break out of; and the front of accuracy and bits."""

import csv
import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fedcomp.display.metric import metric
from fedcomp.objective.pareto import Pareto
from fedcomp.records.reader import read_runs
from fedcomp.reporting.__main__ import main
from fedcomp.reporting.group import group
from fedcomp.reporting.page import to_html
from fedcomp.reporting.pareto import fronts, picture
from fedcomp.reporting.pictures.curves import curves, scatter
from fedcomp.reporting.tables.table import build
from tests.ascii_locale import ascii_locale
from tests.records.synthetic_runs import MakeRun


def test_page(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("sign", 0, [0.1, 0.5, 0.7], config={"label": "</script><b>a&b"})
    make_run("sign", 1, [0.1, 0.6, float("nan")], config={"label": "</script><b>a&b"})
    make_run("topk", 0, [0.1, 0.3, 0.2])
    groups = group(read_runs([tmp_path]))
    with ascii_locale():
        text = to_html("demo", build(groups), curves(groups, [metric("test/accuracy")]), [("Left out", ["a < b"])])
    assert "<li>a &lt; b</li>" in text
    own = re.sub(r"<script>/\*\*\n\* plotly.*?</script>", "", text, flags=re.S)
    assert len(text) - len(own) > 4_000_000  # plotly.js lies inside
    assert not re.search(r"""(src|href)=["']""", own)
    assert "http" not in own
    assert "</script><b>" not in own
    assert "&lt;/script&gt;&lt;b&gt;a&amp;b" in own
    (data,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', own, re.S)
    sent = json.loads(data)
    (section,) = sent["sections"]
    over = {panel["x"]["title"]: panel for panel in section["panels"]}
    odd, topk = over["round"]["series"]
    assert odd["label"] == "</script><b>a&b"
    assert [sent["arrays"][topk[key]] for key in ("x", "y")] == [[0, 10, 20], [10, 30, 20]]
    assert topk["deviation"] == -1  # one seed has none
    assert sent["arrays"][odd["y"]] == [10, 55, None]
    assert sent["arrays"][odd["deviation"]] == [0, 7.07107, None]
    assert over["uplink bits"]["series"][1]["y"] == over["downlink bits"]["series"][1]["y"]  # written once
    cells = re.findall(r'<td data-number="([^"]*)"( class="best")?>([^<]*)</td>', own)
    assert ("0.2", "", "20.00") in cells or ("0.2", ' class="best"', "20.00") in cells
    assert ("", "", "nan ± nan") in cells  # sorted last


@pytest.mark.program("chromium", "chromium-browser", "google-chrome")
@pytest.mark.parametrize("width", [390, 500, 800, 1400])
def test_charts_fit_the_window_and_their_titles_are_below_the_toolbar(
    make_run: MakeRun, tmp_path: Path, width: int
) -> None:
    """Measured in a browser; in a frame, since a window is 500 pixels wide at least."""
    for alpha in (0.1, 1):
        for method in ("sign", "topk"):
            config = {"partition": {"_target_": "x.y.dirichlet.P", "alpha": alpha}}
            make_run(method, 0, [0.1, 0.3, 0.2], config=config, folder=f"{method}{alpha}")
    groups = group(read_runs([tmp_path]))
    judged = metric("test/accuracy")
    pictures = [one for one in (*curves(groups, [judged])[:1], scatter(groups, judged)) if one is not None]
    (tmp_path / "page.html").write_text(to_html("demo", build(groups), pictures, []))
    (tmp_path / "frame.html").write_text(
        f'<iframe src="page.html" style="width:{width}px;height:3000px"></iframe><script>setTimeout(() => {{'
        "const page = document.querySelector('iframe').contentDocument, at = (one) => one.getBoundingClientRect();"
        "const titles = [...page.querySelectorAll('.gtitle')], bars = [...page.querySelectorAll('.modebar')];"
        "document.title = JSON.stringify([page.documentElement.scrollWidth,"
        " Math.max(...[...page.querySelectorAll('.main-svg')].map((one) => at(one).right)),"
        " titles.length, Math.min(...titles.map((one, i) => at(one).top - at(bars[i]).bottom))]);"
        "}, 3000)</script>"
    )
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    flags = "--headless --no-sandbox --disable-gpu --allow-file-access-from-files --virtual-time-budget=9000 --dump-dom"
    command = [browser, *flags.split(), f"--user-data-dir={tmp_path}/user", f"file://{tmp_path}/frame.html"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    whole, right, num_titles, below = json.loads(re.findall("<title>(.*?)</title>", said)[0])
    assert whole <= width
    assert right <= width
    assert num_titles >= 2
    assert below >= 0


PARETO = {"objective": {"_target_": "fedcomp.objective.pareto.Pareto", "way": "total", "bits_to": 1e6}}


@pytest.fixture
def outputs(make_run: MakeRun, tmp_path: Path) -> Path:
    """Best accuracies 80 % and 60 % at 1e5 bits, 90 % at 1e6, 50 % at 1e6, 70 % at 1e5, none."""
    make_run("sign", 0, [0.1, 0.8], extra={"bits/total": 1e5})
    make_run("sign", 1, [0.1, 0.6], extra={"bits/total": 1e5})
    make_run("topk", 0, [0.9, 0.3], extra={"bits/total": 1e6})
    make_run("qsgd", 0, [0.5, 0.3], extra={"bits/total": 1e6})
    make_run("randk", 0, [0.7], extra={"bits/total": 1e5})
    make_run("drive", 0, [], lines=[{"test/loss": 1.0}])
    return tmp_path / "outputs"


def test_who_is_on_the_front(outputs: Path) -> None:
    groups = group(read_runs([outputs]))
    assert fronts(groups) == []
    (found,) = fronts(groups, wanted=True)
    points = [(one.group.label, *one.ends) for one in found.points]
    assert points == [("randk", 0.7, 1e5), ("sign", pytest.approx(0.7), 1e5), ("topk", 0.9, 1e6)]
    assert [one.group.label for one in found.dominated] == ["qsgd"]
    assert found.hypervolume == pytest.approx(0.7)
    (panel,) = picture([found]).panels
    on, off = panel.series
    assert list(on.x) == [1e5, 1e5, 1e6]
    assert on.deviation[1] == pytest.approx(100 * math.sqrt(0.02))
    assert list(off.y) == [50]


def test_a_front_is_written(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(outputs), "--front"]) == 0
    shown = capsys.readouterr().out
    said = "3 of 4 on the front, 70.00 % at 100 kbit to 90.00 % at 1.00 Mbit; hypervolume 0.700 (accuracy × decades"
    assert said in shown
    report = outputs / "report"
    assert {"front.png", "front.pdf", "front.tex"} <= {path.name for path in report.iterdir()}
    assert said in (report / "front.md").read_text()
    assert "hypervolume 0.700" in (report / "report.html").read_text()
    rows = list(csv.DictReader((report / "front.csv").open()))
    assert [(row["method"], row["front"]) for row in rows] == [
        ("randk", "1"),
        ("sign", "1"),
        ("topk", "1"),
        ("qsgd", "0"),
    ]
    assert [row["bits"] for row in rows] == ["100000.0"] * 2 + ["1000000.0"] * 2


def test_runs_of_a_search_for_a_front_ask_for_it(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("sign", 0, [0.1, 0.8], extra={"bits/total": 1e5}, config=PARETO)
    make_run("topk", 0, [0.9, 0.3], extra={"bits/total": 1e5})
    (found,) = fronts(group(read_runs([tmp_path])))
    assert found.objective == Pareto(bits_to=1e6)
    assert found.hypervolume == pytest.approx(0.9)
    assert [one.group.label for one in found.dominated] == ["sign"]


@pytest.mark.usefixtures("no_pictures")
def test_a_front_of_what_has_no_accuracy(make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run("sign", 0, [], lines=[{"test/loss": 1.0}])
    assert main([str(tmp_path), "--front"]) == 0
    assert "no method has a test/accuracy and has sent bits" in capsys.readouterr().out
    assert not (tmp_path / "report" / "front.md").exists()
