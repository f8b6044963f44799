"""Dispersion over repetitions: variances, and the circular error probable.

The circular error probable of points z_r is the median distance to their mean c, CEP = median_r ||z_r - c||: half of
the repetitions end within it. It measures spread and not bias, since the circle is not around the optimum. M. Rostami
and S. S. Kia (ACC 2023) print it without saying of what; their figures fit the first two coordinates of theta.

Shape legend: R repetitions, D parameters.
"""

import torch
from torch import Tensor

from fedcomp.records.metrics_file import Line
from fedcomp.simulation.optimum import LeastSquares

PLANE = 2
"""Coordinates of theta in which the circle is drawn: the first two."""


def dispersion_of(name: str, values: Tensor) -> Line:
    """`name`, the mean over repetitions of values [R], and `variance/name`, their sample variance (of two or more)."""
    line: Line = {name: float(values.mean())}
    return line | ({f"variance/{name}": float(values.var())} if len(values) > 1 else {})


def circular_error(points: Tensor) -> float:
    """CEP of points [R, n]: the median distance to their mean; of an even number of points the middle of two."""
    away = torch.linalg.vector_norm(points - points.mean(0), dim=1).sort().values
    return float(away[(len(away) - 1) // 2] + away[len(away) // 2]) / 2


def dispersion_of_models(theta: Tensor, test: dict[str, Tensor]) -> Line:
    """The spread of models theta [R, D] and of their costs.

    `variance/theta` is the trace of the sample covariance; `cep/plane`, `cep/theta` and `cep/loss` are the circular
    errors probable of the first two coordinates, of theta and of the test loss.
    """
    theta = theta.to(torch.float64)
    line: Line = {"cep/plane": circular_error(theta[:, :PLANE]), "cep/theta": circular_error(theta)}
    if "test/loss" in test:
        line["cep/loss"] = circular_error(test["test/loss"][:, None])
    return line | ({"variance/theta": float(theta.var(0).sum())} if len(theta) > 1 else {})


def models_line(theta: Tensor, optimum: LeastSquares | None) -> dict[str, list[float]]:
    """Where the circle is drawn: `theta/0` and `theta/1` [R], and the optimum's, where known, [1]."""
    coordinates = range(min(PLANE, theta.shape[1]))
    found = {f"theta/{at}": theta[:, at].tolist() for at in coordinates}
    if optimum is not None:
        found |= {f"optimum/{at}": [float(optimum.theta[at])] for at in coordinates}
    return found
