"""Rand-Proj-Spatial's linear algebra: systems solved in two ways, the mean's factor by free probability and by rank."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedcomp.compressor.estimators.proj_spatial import ProjSpatial, _constants, _solve, frame, gram, spectra
from fedcomp.compressor.projections.rand_proj import Projected, RandProj
from fedcomp.core.cohort import Cohort
from tests.compressor.round_trips import known
from tests.looped import looped


def _draw(num: int, kept: int, dim: int, *name: int) -> tuple[Projected, Tensor]:
    codec, shared = RandProj(k=kept, block=dim), known(num, dim, *name)
    part = codec.projected(codec.encode(torch.zeros(num, dim), shared, shared.key), shared)[0]
    # [n k, d] the matrices G_i one below the other: what of the unit vectors is sent.
    eye = torch.eye(dim)
    sent = [codec.encode(row.expand(num, -1), shared, shared.key).fields["values"].data for row in eye]
    return part, torch.stack(sent, 2).flatten(0, 1)


@looped("num, kept, dim", [(3, 4, 16), (4, 8, 16), (2, 1, 4)])
def test_matrices_and_solvers_agree(num: int, kept: int, dim: int) -> None:
    part, dense = _draw(num, kept, dim)
    matrix = dense.double()
    own, rows = part.signs().transpose(0, 1), part.rows.transpose(0, 1)
    torch.testing.assert_close(gram(own, rows)[0], matrix @ matrix.T, rtol=0, atol=1e-6)
    torch.testing.assert_close(frame(own, rows)[0], matrix.T @ matrix, rtol=0, atol=1e-6)
    y = torch.randn(num * kept, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for slope in (-0.3, 0.0, 0.4, 0.9):
        slant = torch.tensor(slope, dtype=torch.float64)
        by_rows, total = _solve(gram(own, rows), y[None], slant, False)
        by_entries, same = _solve(frame(own, rows), (matrix.T @ y)[None], slant, False)
        torch.testing.assert_close(matrix.T @ by_rows[0], by_entries[0], rtol=1e-5, atol=1e-5)
        values, vectors = torch.linalg.eigh(matrix.T @ matrix)
        kept_values = values.clamp(min=0)
        by_spectrum = vectors @ ((vectors.T @ matrix.T @ y) / (1 - slope + slope * kept_values))
        torch.testing.assert_close(by_entries[0], by_spectrum, rtol=1e-5, atol=1e-5)
        assert float(total) == pytest.approx(float(same), rel=1e-5)
        assert float(total) == pytest.approx(float((kept_values / (1 - slope + slope * kept_values)).sum()), rel=1e-5)
    least, rank = _solve(gram(own, rows), y[None], torch.tensor(1.0), True)
    torch.testing.assert_close(matrix.T @ least[0], torch.linalg.pinv(matrix) @ y, rtol=1e-4, atol=1e-4)
    assert int(rank) == int(torch.linalg.matrix_rank(matrix))


@looped("transform, ratio", [("avg", 1.5), ("opt", -0.4), ("one", 0.0)])
def test_each_block_is_decoded_with_the_senders_weights(transform: str, ratio: float) -> None:
    """(beta / n) T(S)^-1 sum_i G_i^T G_i (n w_i x_i) by dense matrices, of blocks of 16 and of 8, sum w_i = 1.3."""
    num, dim, cuts = 3, 24, ((0, 16, 0, 6), (16, 24, 6, 9))
    codec, shared, weight = RandProj(k=9, block=16), known(num, dim), torch.tensor([0.5, 0.2, 0.6])
    estimator = ProjSpatial(transform, ratio if transform == "opt" else None)
    x = torch.randn(num, dim, generator=torch.Generator().manual_seed(1))
    sent = [codec.encode(row.expand(num, -1), shared, shared.key).fields["values"].data for row in torch.eye(dim)]
    dense, wanted, slope = torch.stack(sent, 2).double(), [], ratio / (num - 1)  # [n, k, d]
    for first, end, top, bottom in cuts:
        g = dense[:, top:bottom, first:end]
        values, vectors = torch.linalg.eigh((g.mT @ g).sum(0))
        slant = 1 - slope + slope * values
        scaled = num * weight[:, None].double() * x[:, first:end].double()
        right = (g.mT @ (g @ scaled[:, :, None])).sum(0)[:, 0]
        beta = num * (end - first) / (values / slant).sum()
        wanted.append(beta / num * (vectors @ ((vectors.T @ right) / slant)))
    cohort = replace(Cohort.of(range(num), weight), ids=shared.ids)
    payload = codec.encode(x, shared, shared.key)
    found, _ = estimator.estimate(codec, payload, estimator.init(num, x[0]), cohort, shared)
    torch.testing.assert_close(found.double(), torch.cat(wanted), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("num", "kept", "padded", "within"), [(4, 8, 64, 3e-3), (10, 10, 256, 1e-3)])
def test_mean_factor_is_that_of_free_probability(num: int, kept: int, padded: int, within: float) -> None:
    """As d grows the eigenvalues follow the n-fold free sum of Bernoulli(p), whose transform g solves a quadratic."""
    p, ratio = kept / padded, num / 2
    slope = ratio / (num - 1)
    w = (1 - slope) / slope
    z, a, b = -w, -2 * w - num, num - 2
    quadratic = (num**2 - a**2, num**2 * (4 * p - 2) - 2 * a * b, num**2 - b**2)
    root = (quadratic[1] ** 2 - 4 * quadratic[0] * quadratic[2]) ** 0.5
    found = [(-quadratic[1] + sign * root) / (2 * quadratic[0]) for sign in (1, -1)]
    (g,) = [
        g
        for g in found
        if g < 0 and abs(num * ((1 - g) ** 2 + 4 * p * g) ** 0.5 - (2 * z * g - 2 - num * (g - 1))) < 1e-6
    ]
    free = num * slope / (1 + w * g)
    beta, c1, c2 = _constants(num, kept, padded, slope)
    assert beta == pytest.approx(free, rel=within)
    assert c1 + ratio * c2 == pytest.approx(1 / beta, rel=1e-9)


def test_least_squares_divides_by_the_rank() -> None:
    ranks = [len(values) for values in spectra(4, 4, 16)]
    assert min(ranks) < 16 == max(ranks)  # full rank is not certain at n k = d
    assert sum(ranks) / len(ranks) == pytest.approx(15.13, abs=0.15)
    beta, *_ = _constants(4, 4, 16, 1.0)
    assert beta == pytest.approx(4 * 16 / (sum(ranks) / len(ranks)))
