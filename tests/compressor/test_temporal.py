"""Rand-k-Temporal: error against the memory, what is remembered, idle clients, and theorem 4's bound."""

from __future__ import annotations

import pytest
import torch

from fedcomp.cohort import Cohort
from fedcomp.compressor import Compressor
from fedcomp.compressor.estimator import WeightedSum
from fedcomp.compressor.randk import RandK
from fedcomp.compressor.temporal import Temporal
from tests.compressor.drawing import known

NUM, DIM, K = 5, 12, 4
CODEC = RandK(k=K)
EVERYBODY = Cohort.of(range(NUM), torch.full((NUM,), 1 / NUM))


def _rows(seed: int = 0) -> torch.Tensor:
    return torch.randn(NUM, DIM, generator=torch.Generator().manual_seed(seed))


def _round(estimator: Temporal, x: torch.Tensor, memory: torch.Tensor, draw: int, cohort: Cohort = EVERYBODY):
    shared = known(len(x), x.shape[1], draw)
    shared = type(shared)(shared.key, cohort.ids, shared.layers)
    payload = CODEC.encode(x, shared, shared.key.fold("coin"))
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


def test_static_vectors_are_learnt_at_the_rate_of_the_spec() -> None:
    x, misses = _rows(), []
    for repeat in range(150):
        memory = Temporal().init(NUM, x[0])
        for step in range(3):
            memory = _round(Temporal(), x, memory, 10 * repeat + step)[1]
        misses.append(float((x - memory).double().square().sum()))
    miss = torch.tensor(misses)
    wanted = (1 - K / DIM) ** 3 * float(x.double().square().sum())
    assert abs(float(miss.mean()) - wanted) < 5 * float(miss.std()) / 150**0.5


def test_idle_clients_are_kept() -> None:
    memory, cohort = _rows(1), Cohort.of([1, 3], torch.tensor([0.5, 0.5]))
    _, after, _, _ = _round(Temporal(), _rows()[[1, 3]], memory, 0, cohort)
    assert torch.equal(after[[0, 2, 4]], memory[[0, 2, 4]])
    assert not torch.equal(after[[1, 3]], memory[[1, 3]])


def test_shared_memory_is_the_last_estimate() -> None:
    estimator, x = Temporal("shared"), _rows()
    memory = estimator.init(NUM, x[0])
    assert memory.shape == (1, DIM)
    for step in range(3):
        estimate, memory, _, _ = _round(estimator, x, memory, step)
        assert torch.equal(memory[0], estimate)


def test_theorem_4() -> None:
    # F_i(w) = 1/2 ||w - e_i||^2, b = 0: E||w_t - w*||^2 <= (1 - eta)^t [||w_0 - w*||^2 + (1/n) sum ||grad F_i(w*)||^2]
    # for eta <= min(1 / (1 + 8 alpha), p / 2), alpha = (d/k - 1) / n.
    num, dim, k, rounds, runs = 4, 20, 5, 30, 60
    codec, estimator = RandK(k=k), Temporal()
    centre = torch.randn(num, dim, generator=torch.Generator().manual_seed(0))
    alpha = (dim / k - 1) / num
    eta = min(1 / (1 + 8 * alpha), k / dim / 2)
    optimum, cohort = centre.mean(0), Cohort.of(range(num), torch.full((num,), 1 / num))
    bound = float(optimum.square().sum() + (optimum - centre).square().sum() / num)
    distance = torch.zeros(rounds)
    for run in range(runs):
        w, memory = torch.zeros(dim), estimator.init(num, optimum)
        for step in range(rounds):
            shared = known(num, dim, run, step)
            shared = type(shared)(shared.key, cohort.ids, shared.layers)
            payload = codec.encode(w - centre, shared, shared.key.fold("coin"))
            gradient, memory = estimator.estimate(codec, payload, memory, cohort, shared)
            w = w - eta * gradient
            distance[step] += float((w - optimum).square().sum()) / runs
    assert (distance <= bound * (1 - eta) ** torch.arange(1, rounds + 1)).all()
    assert distance[-1] < 0.4 * distance[0]


def test_memory_is_checked() -> None:
    with pytest.raises(ValueError, match="compressor.estimator.memory=all must be one of client, shared"):
        Temporal("all")
    assert Compressor(CODEC, estimator=Temporal()).init(3, torch.zeros(DIM)).receiver.shape == (3, DIM)


def test_its_error_without_a_memory_is_rand_ks() -> None:
    x = torch.randn(7, 40, generator=torch.Generator().manual_seed(0))
    error = Temporal().expected_error(RandK(0.1), x)
    assert torch.allclose(error, WeightedSum().expected_error(RandK(0.1), x))
    assert torch.allclose(error, 9 * x.double().square().sum() / 49)
