"""The pictures that an experiment's config asks for: points and panels by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcomp.records.reader import read_runs
from fedcomp.reporting.group import group
from fedcomp.reporting.pictures.figure_entry import parse
from fedcomp.reporting.pictures.figures import pictures
from tests.records.synthetic_runs import MakeRun

MSE = {
    "name": "mse",
    "x": "vectors/correlation",
    "y": ["mse"],
    "beside": ["mse/closed_form"],
    "panel": "compressor.fraction",
}


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
                    last = {
                        "vectors/correlation": correlation + 0.01,
                        "mse": scale * (1 + seed) / fraction,
                        "mse/closed_form": scale / fraction,
                    }
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
    for clients in (1, 10, 100):
        config = {"num_clients": clients, "figures": [figure]}
        make_run("sign", 0, [], lines=[{"mse": 2.0 / clients}], config=config, folder=f"{clients}")
    ((picture,), _) = pictures(group(read_runs([tmp_path])))
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
        lines = [
            {"estimate/variance": scale * value, "train/loss": scale * value, "test/loss": scale}
            for value in (200.0, 260.0)
        ]
        make_run("fedscalar", seed, [], lines=lines, config={"figures": figures})
        make_run("fedavg", seed, [], lines=[{"test/loss": 1.0, "train/loss": 1.0}] * 2, config={"figures": figures})
    make_run("single", 0, [], lines=[{"test/loss": 1.0}] * 2, config={"figures": figures})
    (excess, variance, again), notes = pictures(group(read_runs([tmp_path])))
    assert notes == []
    (panel,) = excess.panels
    (line,) = panel.series  # FedAvg has no such metric and is left out
    assert (line.label, panel.lines) == ("fedscalar", (("d - 1", 232.0),))
    assert line.y.tolist() == [400, 460]  # (1 + 3)/2 of 200, then of the running mean 230
    train, test = variance.panels
    assert train.y.log
    assert {one.label: one.y.tolist() for one in train.series}["fedscalar"] == [200.0**2 * 2, 260.0**2 * 2]
    assert {one.label for one in test.series} == {"fedscalar", "fedavg"}  # one seed has no variance
    assert (again.panels[0].lines, again.panels[0].marks) == ((("one", 1.0),), (5.0,))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("mse", "is no mapping"),
        ({"name": "a"}, "has no 'y'"),
        ({"name": "a", "y": "b", "colour": 1}, "'colour', allowed are name, y, x"),
        ({"name": "a", "y": "b", "kind": "pie"}, "allowed are last, curve, variance"),
        ({"name": "a", "y": "b", "lines": {"d": "x"}}, "lines are"),
    ],
)
def test_a_wrong_figure_is_a_line_and_stops_nothing(make_run: MakeRun, tmp_path: Path, entry: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse(entry)
    make_run("sign", 0, [0.1, 0.5], config={"figures": [entry, {"name": "empty", "kind": "curve", "y": "nothing"}]})
    drawn, notes = pictures(group(read_runs([tmp_path])))
    assert drawn == []
    assert said in notes[0]
    assert notes[1] == "figure 'empty' is empty: no finished run has round, nothing together"


def test_what_a_figure_is_over_is_no_quality_and_single_values_make_no_curve(make_run: MakeRun, tmp_path: Path) -> None:
    from fedcomp.reporting import content
    from fedcomp.reporting.tables.table import build as table

    for method in ("randk", "spatial"):
        for seed in (0, 1, 2):
            line = {"vectors/correlation": 0.2, "mse": 0.1 * (1 + seed), "mse/closed_form": 0.1}
            make_run(method, seed, [], lines=[line], config=_estimate(method, 0.1, 0.2))
    groups = group(read_runs([tmp_path]))
    built = table(groups)
    assert built.titles[1:4] == ["mse", "mse closed form", "uplink"]
    assert built.raw[0]["mse_closed_form_std"] == 0  # exactly, although 3 * 0.1 / 3 is not 0.1
    _, sheets, _ = content._pictures(groups)
    assert [sheet.name for sheet in sheets] == ["mse", "scatter"]
