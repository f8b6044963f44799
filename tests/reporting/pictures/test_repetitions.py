"""A study's pictures: thin lines, their mean, and circles, by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcomp.records.reader import read_runs
from fedcomp.reporting import content
from fedcomp.reporting.group import group
from fedcomp.reporting.page import to_html
from fedcomp.reporting.pictures.draw import draw
from fedcomp.reporting.pictures.figure_entry import parse
from fedcomp.reporting.pictures.figures import pictures
from fedcomp.reporting.tables.table import build as table
from tests.records.synthetic_runs import MakeRun

COST = {"name": "cost", "kind": "runs", "x": "gradients", "y": ["test/excess"], "log_y": True}
CEP = {"name": "cep", "kind": "circle", "y": ["theta/0", "theta/1"]}


def _study(make_run: MakeRun, label: str, case: str, scale: float, seed: int = 0) -> None:
    """Two repetitions, four evaluations, and four last places around (3, 4)."""
    rounds = range(3)
    lines = [
        {"round": at, "gradients": 100 * at, "test/excess": scale * 2.0, "variance/test/loss": 0.5, "cep/plane": 1.0}
        for at in rounds
    ]
    config: dict[str, Any] = {"label": label, "case": case, "figures": [COST, CEP]}
    folder = make_run(label, seed, [], lines=lines, config=config, folder=f"{label}-{case}")
    with (folder / "repetitions.jsonl").open("w") as file:
        for at in rounds:
            each = {"test/excess": [scale * (1.0 + at), scale * (3.0 - at)]}
            places = {"theta/0": [3.0 + scale, 3.0 - scale, 3.0, 3.0], "theta/1": [4.0, 4.0, 4.0 + scale, 4.0 - scale]}
            optimum = {"optimum/0": [2.5], "optimum/1": [4.5]}
            file.write(json.dumps({"round": at, **each, **places, **optimum}) + "\n")


def test_thin_lines_and_circles_for_each_case(make_run: MakeRun, tmp_path: Path) -> None:
    for case in ("case 2", "case 1"):
        _study(make_run, "ours", case, 1.0)
        _study(make_run, "theirs", case, 2.0)
    groups = group(read_runs([tmp_path]))
    (cost, cep), notes = pictures(groups)
    assert notes == []
    assert [panel.title for panel in cost.panels] == [panel.title for panel in cep.panels] == ["case 1", "case 2"]
    ours, theirs = cost.panels[0].series
    assert (ours.label, theirs.label, ours.num_seeds) == ("ours", "theirs", 2)
    assert ours.x.tolist() == [100, 200]  # before the first gradient a logarithmic axis has no place
    assert [line.tolist() for line in ours.each] == [[2, 3], [2, 1]]
    assert ours.y.tolist() == [2, 2]
    assert cost.panels[0].x.log
    cloud = cep.panels[1].series[1]
    assert (cloud.mark, cloud.radius, cloud.x.mean(), cloud.y.mean()) == ("cloud", 2.0, 3.0, 4.0)
    assert cep.panels[0].stars == (("optimum", 2.5, 4.5),)
    titles = table(groups).titles[1:]
    assert {"test excess f − f*", "CEP of plane", "variance of test loss"} <= set(titles)


def test_runs_without_repetitions_are_a_line_a_seed(make_run: MakeRun, tmp_path: Path) -> None:
    for seed in (0, 1):
        lines = [{"test/excess": value + seed} for value in (4.0, 2.0)]
        make_run("sgd", seed, [], lines=lines, config={"figures": [{**COST, "x": "round"}, CEP]})
    (cost,), notes = pictures(group(read_runs([tmp_path])))
    (line,) = cost.panels[0].series
    assert [one.tolist() for one in line.each] == [[4, 2], [5, 3]]
    assert np.array_equal(line.y, [4.5, 2.5])
    assert notes == ["figure 'cep' is empty: no finished run has round, theta/0, theta/1 together"]


def test_they_are_drawn_on_paper_and_on_the_page(make_run: MakeRun, tmp_path: Path) -> None:
    _study(make_run, "ours", "case 1", 1.0)
    _study(make_run, "theirs", "case 1", 2.0)
    groups = group(read_runs([tmp_path]))
    drawn, _ = pictures(groups)
    for picture in drawn:
        draw(picture, [tmp_path / f"{picture.name}.png"])
        assert (tmp_path / f"{picture.name}.png").stat().st_size > 10_000
    page = to_html("x", table(groups), drawn, [])
    assert '"radius":2.0' in page
    assert '"stars":[["optimum",2.5,4.5]]' in page
    assert page.count('"each":[') == 4
    assert content.qualities(run for one in groups for run in one.runs)[0].key == "test/excess"


def test_a_circle_needs_a_plane() -> None:
    with pytest.raises(ValueError, match="figure 'cep': a circle lies in a plane of 2 metrics, but y has 1"):
        parse({"name": "cep", "kind": "circle", "y": ["theta/0"]})
