"""The figure's lines, by hand, and that it is drawn."""

import math
from pathlib import Path

import pytest

from fedcomp.report.curves import curve, plot_groups
from fedcomp.report.group import group
from fedcomp.report.runs import find

from .conftest import MakeRun


def test_curve_uses_the_rounds_of_every_seed_after_bits_were_sent(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("sign", 0, [0.1, 0.4, 0.8, 0.9])
    make_run("sign", 1, [0.1, 0.6, 0.8])
    (one,) = group(find([tmp_path]))
    line = curve(one, "test/accuracy", "bits/uplink")
    assert line.bits.tolist() == [1000, 2000]
    assert line.mean.tolist() == pytest.approx([0.5, 0.8])
    assert line.deviation.tolist() == pytest.approx([0.2 / math.sqrt(2), 0])


def test_picture_with_many_groups_and_a_nan(make_run: MakeRun, tmp_path: Path) -> None:
    from matplotlib.image import imread

    for index in range(9):
        for seed in range(2):
            make_run(f"method{index}", seed, [0.1, 0.3 + 0.05 * index + 0.02 * seed, math.nan if index == 0 else 0.9])
    paths = [tmp_path / "curves.png", tmp_path / "curves.pdf"]
    plot_groups(group(find([tmp_path / "outputs"])), paths, "demo")
    assert imread(paths[0]).std() > 0.02
    assert paths[1].read_bytes().startswith(b"%PDF")


def test_no_group_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no finished run"):
        plot_groups([], [tmp_path / "curves.png"])
