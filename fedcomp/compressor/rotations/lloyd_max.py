"""Quantisers of the standard normal distribution with the least mean squared error.

J. Max, "Quantizing for minimum distortion", 1960; S. Lloyd, "Least squares quantization in PCM", 1957 (1982):
boundaries lie midway between centroids, and each centroid is the mean of its interval. Lloyd's iteration takes 10^5
steps at 8 bits, so after a few of them Newton's method, in float64, finds where it ends; the positive half is enough by
symmetry.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np

LLOYD_STEPS = 20
NEWTON_STEPS = 12


@dataclass(frozen=True)
class Quantiser:
    """2^b centroids, ascending.

    Attributes:
        centroids: c_0 < c_1 < ..., symmetric about 0.
        boundaries: one fewer; a value on a boundary goes up.
        distortion: D_b = E (N - Q(N))^2 for N standard normal.
    """

    centroids: tuple[float, ...]
    boundaries: tuple[float, ...]
    distortion: float


@functools.cache
def lloyd_max(bits: int) -> Quantiser:
    """The quantiser with `bits` bits, 1 to 8."""
    half = 1 << (bits - 1)
    centroids = np.linspace(0, 2 + bits / 2, 2 * half + 1)[1::2]
    for _ in range(LLOYD_STEPS):
        centroids = _means(centroids)[0]
    for _ in range(NEWTON_STEPS):
        means, slopes, _ = _means(centroids)
        centroids = centroids - np.linalg.solve(np.eye(half) - slopes, centroids - means)
    means, _, weights = _means(centroids)
    assert np.abs(means - centroids).max() < 1e-12
    both = np.concatenate((-centroids[::-1], centroids))
    # E Q(N)^2 = E N Q(N) at the optimum, so D_b = 1 - E Q(N)^2.
    distortion = 1 - 2 * float(weights @ centroids**2)
    return Quantiser(tuple(both.tolist()), tuple(((both[1:] + both[:-1]) / 2).tolist()), distortion)


def _means(centroids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means of the intervals around positive centroids, their derivatives [i, j] by centroid j, and probabilities."""
    inner = (centroids[1:] + centroids[:-1]) / 2
    edges = np.concatenate(([0.0], inner, [math.inf]))
    density = np.exp(-(edges**2) / 2) / math.sqrt(2 * math.pi)
    weights = -np.diff([math.erfc(edge / math.sqrt(2)) / 2 for edge in edges])
    means = -np.diff(density) / weights
    # d mean / d edge is density (edge - mean) / weight above and density (mean - edge) / weight below; an inner edge
    # moves by half of each neighbour.
    above = density[1:-1] * (inner - means[:-1]) / weights[:-1] / 2
    below = density[1:-1] * (means[1:] - inner) / weights[1:] / 2
    own = np.append(above, 0.0) + np.insert(below, 0, 0.0)
    return means, np.diag(own) + np.diag(above, 1) + np.diag(below, -1), weights
