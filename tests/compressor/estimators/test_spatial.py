"""Rand-k-Spatial: figure 6 of the paper in exact numbers, no bias, closed forms of the error, what it reduces to."""

import random

import numpy as np
import pytest
import torch

from fedcomp.compressor.estimators.spatial import _binomial, _factors
from fedcomp.core.cohort import Cohort
from tests.compressor.round_trips import estimates, known
from tests.looped import looped
from tests.parts import Compressor, RandK, RandomMask, Spatial, WeightedSum


def _paper_vectors(columns: int) -> torch.Tensor:
    """Appendix B.1: ten vectors of a hundred entries +-0.1 whose R2/R1 is columns / 10 - 1."""
    x = torch.full((10, 100), 0.1)
    x[5:, columns:] = -0.1
    return x


# D. Jhunjhunwala et al., NeurIPS 2021, figure 6, in exact numbers: (k, R2/R1) -> Rand-k, Avg, Max, Opt.
FIGURE_6 = {
    (10, -1): (0.9, 1.0382, 1.1561, 0),
    (10, 0): (0.9, 0.9912, 1.0940, 0.9),
    (10, 5): (0.9, 0.7563, 0.7836, 0.7563),
    (10, 9): (0.9, 0.5683, 0.5353, 0.5353),
    (50, -1): (0.1, 0.1298, 0.1436, 0),
    (50, 0): (0.1, 0.1173, 0.1293, 0.1),
    (50, 5): (0.1, 0.0549, 0.0580, 0.0549),
    (50, 9): (0.1, 0.00495, 0.00098, 0.00098),
}


@looped("k, ratio", FIGURE_6)
def test_figure_6(k: int, ratio: int) -> None:
    x, codec = _paper_vectors(10 * ratio + 10), RandK(k=k)
    r1 = float(x.square().sum())
    assert float(x.sum(0).square().sum()) / r1 - 1 == pytest.approx(ratio, abs=1e-5)
    estimators = (WeightedSum(), Spatial("avg"), Spatial("max"), Spatial("opt", float(ratio)))
    for estimator, wanted in zip(estimators, FIGURE_6[k, ratio], strict=True):
        assert float(estimator.expected_error(codec, x)) == pytest.approx(wanted, rel=1e-2, abs=1e-6)


def _cases():
    pick = random.Random(0)
    for transform in ("max", "avg", "opt"):
        for _ in range(2):
            num, dim = pick.randint(2, 8), pick.randint(5, 20)
            yield transform, num, dim, RandK(k=pick.randint(1, dim - 1)), pick.uniform(-0.5, num - 1)
    yield "avg", 4, 9, RandomMask(0.4), None


@looped("transform, num, dim, codec, ratio", list(_cases()))
def test_unbiased_with_the_closed_form_error(transform, num, dim, codec, ratio) -> None:
    generator = torch.Generator().manual_seed(dim)
    x = torch.randn(1, dim, generator=generator) + torch.randn(num, dim, generator=generator)
    estimator = Spatial(transform, ratio if transform == "opt" else None)
    error = estimates(codec, estimator, x, 800).double() - x.double().mean(0)
    assert (error.mean(0).abs() < 5 * error.std(0) / 800**0.5).all()
    squares = error.square().sum(1)
    assert abs(squares.mean() - estimator.expected_error(codec, x)) < 5 * squares.std() / 800**0.5


def test_conditioning_of_the_papers_lemma_2_would_be_biased() -> None:
    # "M_j >= 1" taken literally, a zero-truncated Bin(n, p), would shrink the mean to 0.854: n = 5, p = 1/3, Avg.
    num, p = 5, 1 / 3
    inverse = 1 / (1 + (num / 2) * np.arange(num) / (num - 1))
    right, truncated = _binomial(num - 1, p), _binomial(num, p)[1:] / (1 - (1 - p) ** num)
    assert (right @ inverse) / (truncated @ inverse) == pytest.approx(0.854, abs=0.001)


def test_max_on_equal_vectors() -> None:
    # beta = n / (1 - (1-p)^n): the mean of what arrived over the probability that anything did; MSE q/(1-q) ||x||^2.
    num, k, dim = 6, 3, 12
    p, q = k / dim, (1 - k / dim) ** num
    assert _factors(num, p, num - 1.0)[1:] * torch.arange(1, num + 1).numpy() == pytest.approx(1 / (1 - q))
    x = torch.randn(1, dim, generator=torch.Generator().manual_seed(0)).expand(num, -1)
    assert float(Spatial("max").expected_error(RandK(k=k), x)) == pytest.approx(
        q / (1 - q) * float(x[0].square().sum()), rel=1e-5
    )


@looped("transform", ["max", "avg", "opt", "online"])
def test_everything_sent_is_exact(transform: str) -> None:
    x = torch.randn(4, 9, generator=torch.Generator().manual_seed(0))
    estimator = Spatial(transform, 1.0 if transform == "opt" else None)
    assert torch.allclose(estimates(RandK(k=9), estimator, x, 1)[0], x.mean(0), atol=1e-6)


def test_constant_transform_and_one_client_are_rand_k() -> None:
    x = torch.randn(4, 9, generator=torch.Generator().manual_seed(0))
    plain = estimates(RandK(k=3), WeightedSum(), x, 5)
    assert torch.allclose(estimates(RandK(k=3), Spatial("opt", 0.0), x, 5), plain, atol=1e-6)
    for transform in ("max", "avg", "online"):
        alone = estimates(RandK(k=3), Spatial(transform), x[:1], 5)
        assert torch.allclose(alone, estimates(RandK(k=3), WeightedSum(), x[:1], 5), atol=1e-6)


def test_opposed_vectors_are_exact() -> None:
    assert not estimates(RandK(k=30), Spatial("opt", -1.0), _paper_vectors(0), 3).any()


def test_weights() -> None:
    x, weight = torch.randn(4, 9, generator=torch.Generator().manual_seed(0)), torch.tensor([0.1, 0.4, 0.3, 0.2])
    draws = estimates(RandK(k=4), Spatial("avg"), x, 800, weight).double()
    error = draws - (weight @ x).double()
    assert (error.mean(0).abs() < 5 * error.std(0) / 800**0.5).all()


def test_online_learns_the_correlation_and_stays_unbiased() -> None:
    x, codec, estimator = _paper_vectors(90), RandK(k=20), Spatial("online", decay=0.9)
    cohort = Cohort.of(range(2, 12), torch.full((10,), 0.1))
    memory, errors, ratios = estimator.init(12, x[0]), [], []
    for draw in range(700):
        shared = known(10, 100, draw)
        payload = codec.encode(x, shared, shared.key.fold_in("coin"))
        estimate, memory = estimator.estimate(codec, payload, memory, cohort, shared)
        errors.append(estimate.double() - x.double().mean(0))
        ratios.append(float(memory[0, 1] / memory[0, 0]))
    error = torch.stack(errors)
    assert (error.mean(0).abs() < 5 * error.std(0) / 700**0.5).all()
    assert sum(ratios[100:]) / len(ratios[100:]) == pytest.approx(8.0, rel=0.05)
    squares = error[100:].square().sum(1)
    opt, plain = (float(one.expected_error(codec, x)) for one in (Spatial("opt", 8.0), WeightedSum()))
    assert abs(float(squares.mean()) - opt) < 0.1 * opt < 0.1 * plain


def test_more_correlation_than_all_senders_can_have_is_refused_and_than_a_round_has_is_its_most() -> None:
    x = torch.randn(4, 9, generator=torch.Generator().manual_seed(0))
    opt = Compressor(RandK(k=3), estimator=Spatial("opt", 5.0))
    with pytest.raises(ValueError, match=r"estimator.ratio=5.0 must be in \[-1, 4\], R2/R1 of at most n = 5"):
        opt.init(5, x[0])
    assert opt.init(6, x[0]).receiver.shape == (1, 0)
    most = estimates(RandK(k=3), Spatial("max"), x, 5)
    assert torch.equal(estimates(RandK(k=3), Spatial("opt", 5.0), x, 5), most)


def test_online_assumes_no_more_than_that_all_vectors_are_alike() -> None:
    """Whatever was estimated: R2/R1 is at most n - 1."""
    online, num, p = Spatial("online"), 5, 0.3
    for r2, ratio in ((100.0, 4.0), (3.9, 3.9), (-50.0, -0.9)):
        learnt = online._table(num, p, torch.tensor([[1.0, r2, 1.0]]))
        assert torch.allclose(learnt, Spatial("opt", ratio)._table(num, p, torch.zeros(1, 0)), rtol=1e-5)
