"""The pictures that an experiment's config asks for, and a study's with its repetitions: points and panels by hand."""

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

MSE = {"name": "mse", "x": "vectors/correlation", "y": ["mse"], "beside": ["mse/closed_form"]}
MSE |= {"panel": "compressor.fraction"}


def _estimate(method: str, fraction: float, correlation: float) -> dict[str, Any]:
    return {
        "compressor": {"_target_": f"fedcomp.compressor.{method}.Codec", "fraction": fraction},
        "dataset": {"_target_": "fedcomp.dataset.tables.vectors.load", "correlation": correlation},
        "figures": [MSE],
    }


def test_last_values_over_a_metric_in_panels(make_run: MakeRun, tmp_path: Path) -> None:
    for method, scale in (("randk", 1.0), ("spatial", 0.5)):
        for fraction in (0.1, 0.02):
            for correlation in (0.9, 0.0):
                for seed in (0, 1):
                    last = {"mse": scale * (1 + seed) / fraction, "mse/closed_form": scale / fraction}
                    last |= {"vectors/correlation": correlation + 0.01}
                    name = f"{method}-{fraction}-{correlation}"
                    config = _estimate(method, fraction, correlation)
                    make_run(method, seed, [], lines=[{"mse": 1e9}, last], config=config, folder=name)
    (picture,), notes = pictures(group(read_runs([tmp_path])))
    assert notes == []
    assert [panel.title for panel in picture.panels] == ["fraction = 0.02", "fraction = 0.1"]
    assert picture.order == ("randk", "spatial")  # neither the correlation nor the fraction names a line
    drawn = {(one.label, one.mark): one for one in picture.panels[1].series}
    assert set(drawn) == {(name, mark) for name in ("randk", "spatial") for mark in ("both", "beside")}
    assert drawn["spatial", "both"].x.tolist() == [0.01, 0.91]
    assert drawn["spatial", "both"].y.tolist() == pytest.approx([7.5, 7.5])
    assert drawn["spatial", "both"].deviation.tolist() == pytest.approx([np.std([5, 10], ddof=1)] * 2)
    assert drawn["randk", "beside"].y.tolist() == pytest.approx([10, 10])
    assert "(dashed: mse closed form)" in picture.panels[0].y.title


def test_over_a_config_key_with_log_axes_where_values_are_far_apart(make_run: MakeRun, tmp_path: Path) -> None:
    figure = {"name": "by clients", "x": "num_clients", "y": "mse"}
    rate = {"name": "by bits", "x": "bpp/uplink", "y": "mse"}
    for clients in (1, 10, 100):
        config = {"num_clients": clients, "figures": [figure, rate]}
        last = {"mse": 2.0 / clients, "bpp/uplink": 32.0}
        make_run("sign", 0, [], lines=[last], config=config, folder=f"{clients}")
    ((picture, rated), _) = pictures(group(read_runs([tmp_path])))
    assert rated.panels[0].x.title == "bits per parameter, uplink"
    (panel,) = picture.panels
    (line,) = panel.series
    assert (line.x.tolist(), line.y.tolist()) == ([1, 10, 100], [2.0, 0.2, 0.02])
    assert (panel.x.log, panel.y.log, picture.name) == (True, True, "by-clients")


def test_curves_averages_and_variances_of_fedscalar(make_run: MakeRun, tmp_path: Path) -> None:
    figures = [
        {"name": "excess", "kind": "curve", "y": ["estimate/variance"], "average": True, "lines": {"d - 1": 232}},
        {"name": "variance", "kind": "variance", "x": "round", "y": ["train/loss", "test/loss"], "log_y": True},
        {"name": "again", "kind": "variance", "y": "test/loss", "lines": [{"value": 1, "label": "one"}], "marks": [5]},
    ]
    for seed, scale in ((0, 1.0), (1, 3.0)):
        values = (200.0 * scale, 260.0 * scale)
        lines = [{"estimate/variance": value, "train/loss": value, "test/loss": scale} for value in values]
        make_run("fedscalar", seed, [], lines=lines, config={"figures": figures})
        make_run("fedavg", seed, [], lines=[{"test/loss": 1.0, "train/loss": 1.0}] * 2, config={"figures": figures})
    for seed, name in ((0, "test/loss"), (1, "train/loss")):  # one seed of each
        make_run("single", seed, [], lines=[{name: 1.0}] * 2, config={"figures": figures})
    (excess, variance, again), notes = pictures(group(read_runs([tmp_path])))
    assert notes == []
    (panel,) = excess.panels
    (line,) = panel.series  # FedAvg has no such metric and is left out
    assert (line.label, panel.lines) == ("fedscalar", (("d - 1", 232.0),))
    assert line.y.tolist() == [400, 460]  # (1 + 3)/2 of 200, then of the running mean 230
    train, test = variance.panels
    assert train.y.log
    assert {one.label: one.y.tolist() for one in train.series}["fedscalar"] == [200.0**2 * 2, 260.0**2 * 2]
    for panel in (train, test):
        assert {one.label for one in panel.series} == {"fedscalar", "fedavg"}  # one seed has no variance
    assert (again.panels[0].lines, again.panels[0].marks) == ((("one", 1.0),), (5.0,))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("mse", "is no mapping"),
        ({"name": "a"}, "has no 'y'"),
        ({"name": "a", "y": "b", "colour": 1}, "'colour', allowed are name, y, x"),
        ({"name": "a", "y": "b", "kind": "pie"}, "allowed are last, curve, variance"),
        ({"name": "a", "y": "b", "lines": {"d": "x"}}, "lines are"),
        ({"name": "a", "y": "b", "x": ["round"]}, ", but must be a key such as test/loss"),
        ({"name": "a", "y": "b", "panel": ["c"]}, ", but must be a key such as test/loss"),
        ({"name": "a", "y": "b", "log_y": "yes"}, "log_y is 'yes', but must be true or false"),
        ({"name": "cep", "kind": "circle", "y": "theta/0"}, "a circle lies in a plane of 2 metrics, but y has 1"),
    ],
)
def test_a_wrong_figure_is_a_line_and_stops_nothing(make_run: MakeRun, tmp_path: Path, entry: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse(entry)
    make_run("sign", 0, [0.1, 0.5], config={"figures": [entry, {"name": "empty", "kind": "curve", "y": "nothing"}]})
    runs = read_runs([tmp_path])
    drawn, notes = pictures(group(runs))
    assert drawn == []
    assert said in notes[0]
    assert [one.key for one in content.qualities(runs)] == ["test/accuracy", "test/loss"]
    assert notes[1].startswith("figure 'empty' is empty: no finished run has nothing (there are: ")


def test_what_a_figure_is_over_is_no_quality_and_single_values_make_no_curve(make_run: MakeRun, tmp_path: Path) -> None:
    for method in ("randk", "spatial"):
        for seed in (0, 1, 2):
            line = {"vectors/correlation": 0.2, "mse": 0.1 * (1 + seed), "mse/closed_form": 0.1}
            make_run(method, seed, [], lines=[line], config=_estimate(method, 0.1, 0.2))
    groups = group(read_runs([tmp_path]))
    built = table(groups)
    assert built.titles[1:4] == ["mse", "mse closed form", "uplink"]
    assert built.raw[0]["mse_closed_form_std"] == 0  # exactly, although 3 * 0.1 / 3 is not 0.1
    judged = content.qualities(run for one in groups for run in one.runs)
    _, sheets, _ = content._pictures(groups, judged, ())
    assert [sheet.name for sheet in sheets] == ["mse", "scatter"]


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
    make_run("sgd", 2, [], lines=[{"test/loss": 1.0}] * 2, config={"figures": [{**COST, "x": "round"}, CEP]})
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
