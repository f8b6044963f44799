"""Variances and circular errors probable, by hand."""

import pytest
import torch

from fedcomp.simulation.monte_carlo.dispersion import circular_error, dispersion_of, dispersion_of_models, models_line


def test_half_of_the_points_lie_within_the_circle() -> None:
    """Distances to the mean (0, 0): 1, 1, 2, 2, 3, 3; the median is 2."""
    x = [1.0, -1, 2, -2, 3, -3]
    assert circular_error(torch.tensor([[value, 0] for value in x])) == 2
    assert circular_error(torch.tensor([[0.0, value + 7] for value in [1.0, -1, 4, -4]])) == 2.5
    assert circular_error(torch.tensor([[3.0, 4.0]])) == 0


def test_circle_is_around_the_mean_and_not_the_origin() -> None:
    points = torch.randn(41, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 100
    away = (points - points.mean(0)).norm(dim=1)
    radius = circular_error(points)
    assert (away <= radius).sum() == 21
    assert radius < 3


def test_lines() -> None:
    assert dispersion_of("test/loss", torch.tensor([1.0, 3.0])) == {"test/loss": 2, "variance/test/loss": 2}
    assert dispersion_of("test/loss", torch.tensor([1.0])) == {"test/loss": 1}
    theta = torch.tensor([[1.0, 0, 5], [3.0, 0, 5], [2.0, 0, 8]])
    line = dispersion_of_models(theta, {"test/loss": torch.tensor([1.0, 2.0, 4.0])})
    assert line["variance/theta"] == pytest.approx(1 + 0 + 3)
    assert line["cep/plane"] == 1
    assert line["cep/theta"] == pytest.approx(2**0.5)
    assert line["cep/loss"] == pytest.approx(4 / 3)
    assert models_line(theta, None) == {"theta/0": [1, 3, 2], "theta/1": [0, 0, 0]}
    assert models_line(theta[:, :1], None) == {"theta/0": [1, 3, 2]}
