"""Rand-Proj-Spatial: no bias, the closed form of its error, its linear algebra, what it reduces to, what is refused."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedcomp.compressor.estimators.proj_spatial import ProjSpatial, _constants, _solve, frame, gram, spectra
from fedcomp.compressor.projections.rand_proj import Projected, RandProj
from fedcomp.core.cohort import Cohort
from fedcomp.wire import WireError
from tests.compressor.round_trips import estimates, gauss, known
from tests.looped import looped
from tests.parts import WeightedSum
from tests.thorough import thorough


def _many(
    codec: RandProj, transform: str, ratio: float | None, x: Tensor, num_draws: int, normaliser: str = "round"
) -> Tensor:
    """[S, D] as `estimates`, faster: the draws are blocks of one long vector."""
    dim = x.shape[1]
    assert dim == codec.block
    long = RandProj(k=codec.k * num_draws, fraction=None, block=dim)  # type: ignore[operator]
    estimator = ProjSpatial(transform, ratio, normaliser=normaliser, allow_unstable=True)
    return estimates(long, estimator, x.repeat(1, num_draws), 1).view(num_draws, dim)


def _vectors(kind: str, num: int, dim: int) -> Tensor:
    rows = gauss(num, dim, seed=num * dim)
    if kind == "equal":
        return rows[:1].expand(num, -1).contiguous()
    if kind == "orthogonal":
        return torch.linalg.qr(rows.T).Q.T.contiguous()
    mixed = rows + 0.7 * rows[:1]
    return mixed * torch.arange(1, num + 1)[:, None] if kind == "unequal" else mixed


def _unbiased(draws: Tensor, mean: Tensor) -> None:
    off, deviation = (draws.mean(0) - mean).abs(), draws.std(0) / len(draws) ** 0.5
    assert (off < 5 * deviation + 1e-5).all()
    slope = float(draws.mean(0) @ mean / mean.square().sum())
    assert slope == pytest.approx(1, abs=5 * float(deviation.mean() / mean.norm() * len(mean) ** 0.5 / 2))


@looped("transform, ratio", [("one", None), ("avg", None), ("opt", -0.5)])
@looped("normaliser", ["round", "mean"])
def test_unbiased(transform: str, ratio: float | None, normaliser: str) -> None:
    x = _vectors("unequal", 3, 16)
    _unbiased(_many(RandProj(k=4, block=16), transform, ratio, x, 5000, normaliser), x.mean(0))


@pytest.mark.parametrize("kind", ["unequal", *thorough(["mixed", "equal", "orthogonal"])])
@looped("transform, ratio", [("one", None), ("avg", None), ("opt", 1.65), ("opt", -0.5), ("max", None)])
def test_error_is_the_closed_form(kind: str, transform: str, ratio: float | None) -> None:
    x, codec = _vectors(kind, 5, 64), RandProj(k=8, block=64)
    expected = ProjSpatial(transform, ratio).expected_error(codec, x)
    assert expected is not None
    squared = (_many(codec, transform, ratio, x, 1200) - x.mean(0)).double().square().sum(1)
    deviation = float(squared.std() / len(squared) ** 0.5)
    assert float(squared.mean()) == pytest.approx(float(expected), rel=0.02, abs=4 * deviation)


def test_equal_vectors_and_least_squares() -> None:
    x = _vectors("equal", 4, 32)
    codec = RandProj(k=4, block=32)  # n k = d / 2
    for estimate in _many(codec, "max", None, x, 20):
        projection = estimate / 2  # of full rank: (d / n k) P x with P a projection
        assert float(projection.square().sum()) == pytest.approx(float(projection @ x[0]), rel=1e-4)
        assert float((estimate - x[0]).square().sum()) == pytest.approx(float(x[0].square().sum()), rel=1e-4)
    recovered = _many(RandProj(k=16, block=32), "max", None, x, 10)  # n k = 2 d
    torch.testing.assert_close(recovered, x[:1].expand(10, -1), rtol=1e-4, atol=1e-5)


@looped("transform", ["one", "avg", "max", "online"])
def test_a_single_sender(transform: str) -> None:
    x, codec = _vectors("mixed", 1, 30), RandProj(k=5)
    alone = estimates(codec, WeightedSum(), x, 2)
    torch.testing.assert_close(estimates(codec, ProjSpatial(transform), x, 2), alone, rtol=1e-4, atol=1e-5)


def test_all_opposed_vectors_are_known_to_sum_to_zero() -> None:
    x = torch.cat((_vectors("mixed", 1, 16), -_vectors("mixed", 1, 16)))
    estimator = ProjSpatial("opt", -1.0)
    assert not estimates(RandProj(k=4), estimator, x, 1).any()
    assert float(estimator.expected_error(RandProj(k=4), x)) < 1e-9  # type: ignore[arg-type]


def test_correlation_is_learnt_without_bias() -> None:
    x, codec, estimator = _vectors("mixed", 4, 40), RandProj(k=10, block=32), ProjSpatial("online", decay=0.0)
    cohort, seen = Cohort.of(range(4), torch.full((4,), 0.25)), []
    for draw in range(150):
        shared = known(4, 40, draw)
        payload = codec.encode(x, shared, shared.key)
        seen.append(estimator.estimate(codec, payload, estimator.init(4, x[0]), cohort, shared)[1][0])
    found = torch.stack(seen)
    r1 = float(x.square().sum())
    for column, expected in ((0, r1), (1, float(x.sum(0).square().sum()) - r1), (2, 1.0)):
        error = float(found[:, column].std() / 150**0.5)
        assert float(found[:, column].mean()) == pytest.approx(expected, abs=4 * error + 1e-6)
    learnt = estimates(codec, estimator, x, 2, memory=found.mean(0)[None])
    ratio = float(found[:, 1].mean() / found[:, 0].mean())
    torch.testing.assert_close(learnt, estimates(codec, ProjSpatial("opt", ratio), x, 2), rtol=1e-4, atol=1e-5)


@looped("dim", [1, 7, 513, 1024, 5000, 61_706])
def test_blocks_cover_the_vector_and_share_the_numbers(dim: int) -> None:
    codec = RandProj(0.1, block=256)
    groups = codec.groups(dim)
    assert sum(group.num * group.size for group in groups) == dim
    assert sum(group.num * group.kept for group in groups) == max(1, round(0.1 * dim))
    assert all(1 <= group.kept <= group.size for group in groups)


def test_the_largest_remainders_get_what_is_left_over() -> None:
    dealt = RandProj(k=6, block=64).groups(100)  # 3.84 and 2.16
    assert [(group.size, group.kept) for group in dealt] == [(64, 4), (36, 2)]


def test_least_squares_near_one_is_refused_in_the_round() -> None:
    x = _vectors("mixed", 4, 32)
    for kept in (7, 8, 9):
        wanted = rf"transform=max is unstable where n k / d is near 1: .* {kept} numbers each of 32"
        with pytest.raises(ValueError, match=wanted):
            estimates(RandProj(k=kept), ProjSpatial("max"), x, 1)
    with pytest.raises(ValueError, match="transform=avg is unstable .* here 2 senders .*; take transform=one, "):
        estimates(RandProj(k=16), ProjSpatial("avg"), x[:2], 1)
    for kept in (6, 10):
        estimates(RandProj(k=kept), ProjSpatial("max"), x, 1)
    assert torch.isfinite(estimates(RandProj(k=8), ProjSpatial("max", allow_unstable=True), x, 1)).all()


@pytest.mark.parametrize("participation", [("num_clients=4",), ("num_clients=9", "participation=uniform")])
def test_least_squares_near_one_is_refused_before_the_first_round(fedcomp, capsys, tmp_path, participation) -> None:
    options = (*participation, "compressor=rand_proj_spatial", "compressor.fraction=0.25", f"output_root={tmp_path}")
    sampled = ("participation.num_participants=4",) if len(participation) > 1 else ()
    assert fedcomp(*options, *sampled, "compressor.estimator.transform=max", "rounds=1") != 0
    assert "transform=max is unstable where n k / d is near 1: here 4 senders" in capsys.readouterr().err
    assert not list(tmp_path.rglob("metrics.jsonl"))


def test_a_message_of_another_length_is_refused() -> None:
    shared = known(2, 40)
    payload = RandProj(k=8).encode(torch.zeros(2, 40), shared, shared.key)
    with pytest.raises(WireError, match="made by another codec"):
        RandProj(k=9).decode(payload, shared)


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
    x = gauss(num, dim, seed=1)
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


def test_least_squares_divides_by_the_rank() -> None:
    ranks = [len(values) for values in spectra(4, 4, 16)]
    assert min(ranks) < 16 == max(ranks)  # full rank is not certain at n k = d
    assert sum(ranks) / len(ranks) == pytest.approx(15.13, abs=0.15)
    beta, *_ = _constants(4, 4, 16, 1.0)
    assert beta == pytest.approx(4 * 16 / (sum(ranks) / len(ranks)))
