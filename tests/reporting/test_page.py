"""The page: complete in itself, its numbers, and nothing a label can break out of."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fedcomp.records.reader import read_runs
from fedcomp.reporting.group import group
from fedcomp.reporting.metrics import metric
from fedcomp.reporting.page import to_html
from fedcomp.reporting.pictures.curves import curves, scatter
from fedcomp.reporting.tables.table import build
from tests.records.synthetic_runs import MakeRun


def test_page(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("sign", 0, [0.1, 0.5, 0.7], config={"label": "</script><b>a&b"})
    make_run("sign", 1, [0.1, 0.6, float("nan")], config={"label": "</script><b>a&b"})
    make_run("topk", 0, [0.1, 0.3, 0.2])
    groups = group(read_runs([tmp_path]))
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
