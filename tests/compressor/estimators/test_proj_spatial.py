"""Rand-Proj-Spatial: no bias, the closed form of its error, what it reduces to, what is refused."""

import pytest
import torch
from torch import Tensor

from fedcomp.compressor.estimators.estimator import WeightedSum
from fedcomp.compressor.estimators.proj_spatial import ProjSpatial
from fedcomp.compressor.projections.rand_proj import RandProj
from fedcomp.core.cohort import Cohort
from fedcomp.wire import WireError
from tests.compressor.round_trips import estimates, known
from tests.looped import looped
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
    rows = torch.randn(num, dim, generator=torch.Generator().manual_seed(num * dim))
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
    _unbiased(_many(RandProj(k=4, block=16), transform, ratio, x, 10_000, normaliser), x.mean(0))


@pytest.mark.parametrize("kind", ["unequal", *thorough(["mixed", "equal", "orthogonal"])])
@looped("transform, ratio", [("one", None), ("avg", None), ("opt", 1.65), ("opt", -0.5), ("max", None)])
def test_error_is_the_closed_form(kind: str, transform: str, ratio: float | None) -> None:
    x, codec = _vectors(kind, 5, 64), RandProj(k=8, block=64)
    expected = ProjSpatial(transform, ratio).expected_error(codec, x)
    assert expected is not None
    squared = (_many(codec, transform, ratio, x, 2500) - x.mean(0)).double().square().sum(1)
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


@looped("dim", [1, 7, 1024, 5000, 61_706])
def test_blocks_cover_the_vector_and_share_the_numbers(dim: int) -> None:
    codec = RandProj(0.1, block=256)
    groups = codec.groups(dim)
    assert sum(group.num * group.size for group in groups) == dim
    assert sum(group.num * group.kept for group in groups) == max(1, round(0.1 * dim))
    assert all(1 <= group.kept <= group.size for group in groups)


def test_least_squares_near_one_is_refused_in_the_round() -> None:
    x = _vectors("mixed", 4, 32)
    for kept in (7, 8, 9):
        wanted = rf"transform=max is unstable where n k / d is near 1: .* {kept} numbers each of 32"
        with pytest.raises(ValueError, match=wanted):
            estimates(RandProj(k=kept), ProjSpatial("max"), x, 1)
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
