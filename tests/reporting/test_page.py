"""The page: complete in itself, its numbers, and nothing a label can break out of."""

import json
import re
from pathlib import Path

from fedcomp.records.reader import read_runs
from fedcomp.reporting.group import group
from fedcomp.reporting.metrics import metric
from fedcomp.reporting.page import to_html
from fedcomp.reporting.pictures.curves import curves
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
