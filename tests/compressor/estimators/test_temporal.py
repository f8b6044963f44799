"""Rand-k-Temporal: error against the memory, what is remembered, idle clients, and theorem 4's bound."""

from dataclasses import replace

import pytest
import torch

from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key
from tests.compressor.round_trips import known
from tests.looped import looped
from tests.parts import Compressor, RandK, RandomMask, Temporal, WeightedSum

NUM, DIM, K = 5, 12, 4
CODEC = RandK(k=K)
EVERYBODY = Cohort.of(range(NUM), torch.full((NUM,), 1 / NUM))


def _rows(seed: int = 0) -> torch.Tensor:
    return torch.randn(NUM, DIM, generator=torch.Generator().manual_seed(seed))


def _round(estimator: Temporal, x: torch.Tensor, memory: torch.Tensor, draw: int, cohort: Cohort = EVERYBODY):
    shared = known(len(x), x.shape[1], draw)
    shared = type(shared)(shared.key, cohort.ids, shared.layers)
    payload = CODEC.encode(x, shared, shared.key.fold_in("coin"))
    return (*estimator.estimate(CODEC, payload, memory, cohort, shared), payload, shared)


def test_unbiased_with_the_closed_form_error() -> None:
    x, memory = _rows(0), _rows(1) * 0.5 + _rows(0)
    error = torch.stack([_round(Temporal(), x, memory, draw)[0] for draw in range(1000)]).double() - x.double().mean(0)
    assert (error.mean(0).abs() < 5 * error.std(0) / 1000**0.5).all()
    squares = error.square().sum(1)
    wanted = (DIM / K - 1) * (x - memory).double().square().sum() / NUM**2
    assert abs(squares.mean() - wanted) < 5 * squares.std() / 1000**0.5


def test_first_round_is_rand_k_and_a_true_memory_is_exact() -> None:
    x = _rows()
    first, _, payload, shared = _round(Temporal(), x, Temporal().init(NUM, x[0]), 0)
    assert torch.allclose(first, CODEC.decode(payload, shared).mean(0), atol=1e-6)
    assert torch.allclose(_round(Temporal(), x, x.clone(), 0)[0], x.mean(0), atol=1e-6)


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
    x = torch.randn(7, 40, generator=torch.Generator().manual_seed(0))
    error = Temporal().expected_error(RandK(0.1), x)
    assert torch.allclose(error, WeightedSum().expected_error(RandK(0.1), x))
    assert torch.allclose(error, 9 * x.double().square().sum() / 49)
