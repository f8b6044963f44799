"""Rand-k-Spatial: figure 6 of the paper in exact numbers, no bias, closed forms of the error; Rand-k-Temporal."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedcomp.compressor.estimators.spatial import _binomial
from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key
from tests.compressor.round_trips import estimates, gauss, known
from tests.looped import looped
from tests.parts import Compressor, RandK, RandomMask, Spatial, Temporal, WeightedSum


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
    x = gauss(1, dim, seed=dim) + gauss(num, dim, seed=dim + 1)
    estimator = Spatial(transform, ratio if transform == "opt" else None)
    error = estimates(codec, estimator, x, 400).double() - x.double().mean(0)
    assert (error.mean(0).abs() < 5 * error.std(0) / 20).all()
    squares = error.square().sum(1)
    assert abs(squares.mean() - estimator.expected_error(codec, x)) < 5 * squares.std() / 20


def test_conditioning_of_the_papers_lemma_2_would_be_biased() -> None:
    # "M_j >= 1" taken literally, a zero-truncated Bin(n, p), would shrink the mean to 0.854: n = 5, p = 1/3, Avg.
    num, p = 5, 1 / 3
    inverse = 1 / (1 + (num / 2) * np.arange(num) / (num - 1))
    right, truncated = _binomial(num - 1, p), _binomial(num, p)[1:] / (1 - (1 - p) ** num)
    assert (right @ inverse) / (truncated @ inverse) == pytest.approx(0.854, abs=0.001)


@looped("transform", ["max", "avg", "opt", "online"])
def test_everything_sent_is_exact(transform: str) -> None:
    x = gauss(4, 9)
    estimator = Spatial(transform, 1.0 if transform == "opt" else None)
    assert torch.allclose(estimates(RandK(k=9), estimator, x, 1)[0], x.mean(0), atol=1e-6)


def test_opposed_vectors_are_exact() -> None:
    assert not estimates(RandK(k=30), Spatial("opt", -1.0), _paper_vectors(0), 3).any()


def test_weights() -> None:
    x, weight = gauss(4, 9), torch.tensor([0.1, 0.4, 0.3, 0.2])
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
    x = gauss(4, 9)
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


NUM, DIM, K = 5, 12, 4
CODEC = RandK(k=K)
EVERYBODY = Cohort.of(range(NUM), torch.full((NUM,), 1 / NUM))


def _rows(seed: int = 0) -> torch.Tensor:
    return gauss(NUM, DIM, seed=seed)


def _round(estimator: Temporal, x: torch.Tensor, memory: torch.Tensor, draw: int, cohort: Cohort = EVERYBODY):
    shared = replace(known(len(x), x.shape[1], draw), ids=cohort.ids)
    payload = CODEC.encode(x, shared, shared.key.fold_in("coin"))
    return (*estimator.estimate(CODEC, payload, memory, cohort, shared), payload, shared)


def test_a_memory_has_the_closed_form_error_and_no_bias() -> None:
    x, memory = _rows(0), _rows(1) * 0.5 + _rows(0)
    error = torch.stack([_round(Temporal(), x, memory, draw)[0] for draw in range(1000)]).double() - x.double().mean(0)
    assert (error.mean(0).abs() < 5 * error.std(0) / 1000**0.5).all()
    squares = error.square().sum(1)
    wanted = (DIM / K - 1) * (x - memory).double().square().sum() / NUM**2
    assert abs(squares.mean() - wanted) < 5 * squares.std() / 1000**0.5


def test_memory_keeps_what_was_sent() -> None:
    x, memory = _rows(0), _rows(1)
    before = memory.clone()
    _, after, payload, shared = _round(Temporal(), x, memory, 0)
    sent = CODEC.decode(payload, shared) != 0
    assert torch.equal(after, torch.where(sent, x, memory))
    assert torch.equal(memory, before)
    assert sent.sum() == NUM * K


def test_idle_clients_are_kept() -> None:
    memory, cohort = _rows(1), Cohort.of([1, 3], torch.tensor([0.5, 0.5]))
    _, after, _, _ = _round(Temporal(), _rows()[[1, 3]], memory, 0, cohort)
    assert torch.equal(after[[0, 2, 4]], memory[[0, 2, 4]])
    assert not torch.equal(after[[1, 3]], memory[[1, 3]])


def test_shared_memory_is_the_last_estimate() -> None:
    estimator, x = Temporal("shared"), _rows()
    memory = estimator.init(NUM, x[0])
    assert memory.shape == (1, DIM)
    assert Compressor(CODEC, estimator=Temporal()).init(3, torch.zeros(DIM)).receiver.shape == (3, DIM)
    for step in range(3):
        estimate, memory, _, _ = _round(estimator, x, memory, step)
        assert torch.equal(memory[0], estimate)


WEIGHTS = {"equal": [1 / 8] * 8, "unequal": [0.3, 0.2, 0.15, 0.1, 0.1, 0.05, 0.05, 0.05], "sum below 1": [0.06] * 8}


@looped("codec", [RandK(0.2), RandomMask(0.2), RandK(0.08), RandomMask(0.08)])
@looped("name", ["equal", "unequal"])
def test_error_of_a_shared_memory_has_the_closed_form(name: str, codec: RandK | RandomMask) -> None:
    # MSE_{t+1} = (1/p - 1) [sum w^2 |x_i - x|^2 + sum w^2 MSE_t] for vectors that stay as they are; b_0 = 0 is no
    # estimate, so that the first round has Rand-k's error. All entries are alike: 50,000 draws of one of them.
    num, dim, estimator = 8, 50_000, Temporal("shared")
    cohort = Cohort.of(range(num), torch.tensor(WEIGHTS[name]))
    x = torch.linspace(-1, 2, num)[:, None].expand(num, dim).contiguous()
    weight, mean = cohort.weight.double(), (cohort.weight @ x).double()
    factor, squares = 1 / codec.probability(dim) - 1, float(cohort.weight.double().square().sum())
    spread = float(weight.square() @ (x.double()[:, 0] - mean[0]).square())
    wanted = factor * float(weight.square() @ x.double()[:, 0].square())
    memory = estimator.init(num, x[0])
    for step in range(6):
        shared = replace(known(num, dim, step), ids=cohort.ids)
        payload = codec.encode(x, shared, shared.key.fold_in("coin"))
        estimate, memory = estimator.estimate(codec, payload, memory, cohort, shared)
        error = (estimate.double() - mean).square()
        assert abs(float(error.mean()) - wanted) < 4 * float(error.std()) / dim**0.5, f"round {step + 1}"
        wanted = factor * (spread + squares * wanted)
    assert estimator.growth(codec, dim, squares) == factor * squares


@looped("name", WEIGHTS)
def test_a_shared_memory_is_refused_where_its_error_grows(name: str) -> None:
    squares = float(torch.tensor(WEIGHTS[name]).double().square().sum())
    limit = squares / (1 + squares)  # p at which (1/p - 1) sum w^2 = 1
    for share in (0.97, 1.03):
        codec, estimator, num = RandomMask(share * limit), Temporal("shared"), 8
        cohort = Cohort.of(range(num), torch.tensor(WEIGHTS[name]))
        # b of one entry after another round is multiplied by sum w_i (1 - sent_i / p): the mean square decides.
        sent = codec.sampled(codec.encode(torch.ones(num, 200_000), known(num, 200_000), Key()), known(num, 200_000))
        ones = torch.zeros(num, 200_001).scatter_(1, sent[1], 1)[:, :-1]
        square = (cohort.weight @ (1 - ones / codec.probability(1))).double().square()
        growth = estimator.growth(codec, 1, squares)
        assert abs(float(square.mean()) - growth) < 4 * float(square.std()) / 200_000**0.5
        if share > 1:
            estimator.check_weights(codec, 1, squares)
            continue
        with pytest.raises(ValueError, match=r"diverge: .* = 1\.0\d every round, and this must be below 1"):
            estimator.check_weights(codec, 1, squares)
    Temporal().check_weights(RandomMask(0.01), 1, 1.0)  # a memory for each client never grows


def test_its_error_without_a_memory_is_rand_ks() -> None:
    x = gauss(7, 40)
    error = Temporal().expected_error(RandK(0.1), x)
    assert torch.allclose(error, WeightedSum().expected_error(RandK(0.1), x))
    assert torch.allclose(error, 9 * x.double().square().sum() / 49)
