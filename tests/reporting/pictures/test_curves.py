"""The pictures' lines, by hand, and that they are drawn."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedcomp.display import figure
from fedcomp.display.metric import metric
from fedcomp.records.reader import read_runs
from fedcomp.reporting.group import group
from fedcomp.reporting.pictures.curves import curves, overview, scatter, slug
from fedcomp.reporting.pictures.draw import draw
from fedcomp.reporting.pictures.picture import MAX_LINES, Picture, split, wide
from fedcomp.reporting.pictures.series import series
from tests.records.synthetic_runs import MakeRun

ACCURACY, LOSS = metric("test/accuracy"), metric("test/loss")


def test_curve_uses_the_rounds_of_every_seed_after_bits_were_sent(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("sign", 0, [0.1, 0.4, 0.8, 0.9])
    make_run("sign", 1, [0.1, 0.6, 0.8])
    (one,) = group(read_runs([tmp_path]))
    line = series(one, ACCURACY, "bits/uplink")
    assert line.x.tolist() == [1000, 2000]
    assert line.y.tolist() == pytest.approx([50, 80])
    assert line.deviation.tolist() == pytest.approx([20 / math.sqrt(2), 0])
    assert series(one, ACCURACY, "round").x.tolist() == [0, 10, 20]
    averaged = series(one, ACCURACY, "round", average=True)
    assert averaged.y.tolist() == pytest.approx([10, (10 + 50) / 2, (10 + 50 + 80) / 3])


def test_a_curve_is_of_the_seeds_that_have_the_quality(make_run: MakeRun, tmp_path: Path) -> None:
    for seed in (0, 1):
        make_run("sign", seed, [0.1, 0.2, 0.4])
    make_run("sign", 2, [], lines=[{"test/accuracy": 0.3}] * 3)
    (own,) = group(read_runs([tmp_path]))
    line = series(own, metric("test/loss"), "round")
    assert (line.x.tolist(), line.num_seeds) == ([0, 10, 20], 2)
    assert series(own, metric("test/accuracy"), "round").num_seeds == 3
    assert not len(series(own, metric("test/miou"), "round").x)


def test_a_picture_for_each_setting_and_quality(make_run: MakeRun, tmp_path: Path) -> None:
    for dataset in ("digits", "mnist"):
        for method in ("sign", "topk"):
            config = {"dataset": {"_target_": f"fedcomp.dataset.{dataset}.load"}}
            make_run(method, 0, [0.1, 0.5, 0.75], config=config, folder=f"{method}{dataset}")
    groups = group(read_runs([tmp_path]))
    digits, mnist = (("dataset", "digits"),), (("dataset", "mnist"),)
    assert [(one.label, one.setting) for one in groups[:3]] == [("sign", digits), ("topk", digits), ("sign", mnist)]
    found = curves(groups, [ACCURACY, LOSS])
    assert [one.name for one in found] == ["curves-digits", "curves-mnist", "curves-loss-digits", "curves-loss-mnist"]
    assert [panel.x.title.split()[0] for panel in found[0].panels] == ["uplink", "downlink", "total", "round"]
    assert found[0].panels[3].series[0].y.tolist() == [10, 50, 75]
    assert found[0].order == found[1].order == ("sign", "topk")
    whole = overview(groups, ACCURACY)
    assert [panel.title for panel in whole.panels] == ["digits", "mnist"]
    points = scatter(groups, ACCURACY)
    best = points.panels[0].series[1]
    assert (best.x.tolist(), best.y.tolist(), best.num_seeds) == ([33.0], [75.0], 1)


def test_too_many_lines_are_split_evenly_and_none_is_lost(make_run: MakeRun, tmp_path: Path) -> None:
    for index in range(MAX_LINES + 2):
        make_run(f"m{index:02}", 0, [0.1, 0.5, 0.6])
    (whole,) = curves(group(read_runs([tmp_path])), [ACCURACY])
    parts = split(whole)
    assert [len(part.order) for part in parts] == [8, 8]
    assert [part.name for part in parts] == ["curves-1", "curves-2"]
    assert [part.title for part in parts] == ["Curves (1 of 2)", "Curves (2 of 2)"]
    assert [label for part in parts for label in part.labels] == whole.labels
    assert len(split(Picture("p", "", "", whole.panels * 5, 2, whole.order[:3]), 12)) == 2


def test_rounds_are_whole_and_bad_math_is_drawn(make_run: MakeRun, tmp_path: Path, monkeypatch) -> None:
    kept = []
    monkeypatch.setattr(figure, "save", lambda picture, path: kept.append(picture))
    make_run("top $x_{k$ of", 0, [0.1, 0.5, 0.6])
    make_run("$x_k$", 0, [0.1, 0.5, 0.6])
    (whole,) = curves(group(read_runs([tmp_path])), [ACCURACY])
    panel = replace(whole.panels[3], title="in $x_{k$")
    panel = replace(panel, series=tuple(replace(one, x=np.arange(len(one.x))) for one in panel.series))
    draw(replace(whole, panels=(panel,), title="all $x_{k$"), [tmp_path / "x.png"])
    (picture,) = kept
    picture.draw_without_rendering()
    (axes,) = picture.axes
    assert all(float(place).is_integer() for place in axes.xaxis.get_majorticklocs())
    assert {text.get_text() for text in picture.legends[0].get_texts()} == {r"top \$x_{k\$ of", "$x_k$"}


def test_names_of_other_letters_are_files_that_can_be_seen_and_told_apart() -> None:
    assert slug("mnist · alpha=0.1") == "mnist-alpha-0.1"
    assert slug("精度") != slug("損失")
    assert all(slug(text)[0].isalnum() for text in ("精度", "損失", "f − f*"))


def test_wide() -> None:
    assert wide([1, 40, math.nan])
    assert not wide([1, 20])
    assert not wide([-1, 1000])
    assert not wide([])


def test_pictures_with_many_groups_a_nan_and_constants(make_run: MakeRun, tmp_path: Path) -> None:
    from matplotlib.image import imread

    for index in range(9):
        for seed in range(2):
            make_run(f"method{index}", seed, [0.1, 0.3 + 0.05 * index + 0.02 * seed, math.nan if index == 0 else 0.9])
    groups = group(read_runs([tmp_path / "outputs"]))
    (whole,) = curves(groups, [ACCURACY])
    small = replace(whole, panels=(replace(whole.panels[0], lines=(("goal", 50.0),), marks=(1500.0,)),), title="demo")
    paths = [tmp_path / "curves.png", tmp_path / "curves.pdf"]
    draw(small, paths)
    assert imread(paths[0]).std() > 0.02
    assert paths[1].read_bytes().startswith(b"%PDF")
    assert np.isnan(small.panels[0].series[0].y[-1])
    draw(small, [tmp_path / "again.pdf"])
    assert (tmp_path / "again.pdf").read_bytes() == paths[1].read_bytes()
