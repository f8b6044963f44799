"""PowerSGD: what one machine would compute, its errors, warm start, the independent form."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from fedcomp.algorithm.low_rank.matrices import LowRank
from fedcomp.wire import Ledger
from tests.algorithm.low_rank.power_rounds import DIM, TENSORS, Matrices, make_clients, one_round, power_sgd, start
from tests.looped import looped
from tests.parts import ServerSgd


@looped("weight", [(0.25, 0.25, 0.25, 0.25), (0.1, 0.5, 0.1, 0.3)])
@looped("rank", [1, 2])
def test_round_is_what_one_machine_would_compute(rank: int, weight: tuple[float, ...]) -> None:
    clients, algorithm, weights = make_clients(), power_sgd(rank=rank), torch.tensor(weight)
    state = start(algorithm, clients)
    after, metrics = one_round(algorithm, clients, state, 0, [0, 1, 2, 3], weights)
    mean = weights @ clients.centres
    low = LowRank.of(TENSORS, rank, 0.0)
    parts = []
    for matrix, q in zip(low.split(low.part.take(mean)[None]), low.split_right(state.q[None])):
        p = torch.linalg.qr(matrix[0] @ q[0]).Q
        parts.append((p @ p.T @ matrix[0]).flatten())
    wanted = low.part.put(mean, torch.cat(parts))
    torch.testing.assert_close(after.theta, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(after.theta[96:108], mean[96:108])  # the bias is dense
    left, sent = weights @ after.errors, torch.cat(parts)
    torch.testing.assert_close(left, low.part.take(mean) - sent, rtol=1e-4, atol=1e-5)
    energy = float(left.square().sum() + sent.square().sum())
    assert energy == pytest.approx(float(low.part.take(mean).square().sum()), rel=1e-4)
    assert float(metrics["powersgd/captured"]) == pytest.approx(float(sent.square().sum()) / energy, rel=1e-4)


def test_warm_start_finds_the_best_subspace_and_fresh_starts_do_not() -> None:
    """A matrix with singular values 1 / i that stays: the server's learning rate is 0."""
    generator = torch.Generator().manual_seed(1)
    left, right = (torch.linalg.qr(torch.randn(side, 8, generator=generator)).Q for side in (12, 8))
    centre = torch.zeros(1, DIM)
    centre[0, :96] = ((left / torch.arange(1.0, 9)) @ right.T).flatten()
    clients = Matrices(torch.ones(DIM), centre)
    best = sum(1 / i**2 for i in (1, 2)) / sum(1 / i**2 for i in range(1, 9))
    captured = {}
    for warm in (True, False):
        algorithm = replace(power_sgd(rank=2, memory="none", warm_start=warm), server=_Still())
        state, found = start(algorithm, clients), []
        for index in range(10):
            state, metrics = one_round(algorithm, clients, state, index, [0])
            found.append(float(metrics["powersgd/captured"]))
        captured[warm] = found
    assert captured[True][-1] == pytest.approx(best, rel=0.01)
    assert sum(captured[False]) / 10 < 0.97 * best


@dataclass(frozen=True)
class _Still:
    """A server that does not step."""

    def init(self, theta: Tensor) -> tuple[Tensor, ...]:
        return ()

    def step(self, update: Tensor, slots: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        return torch.zeros_like(update), slots


def test_nothing_is_lost_with_all_clients_and_own_is_mean() -> None:
    clients = make_clients()
    paths = {}
    for memory in ("own", "mean"):
        algorithm = replace(power_sgd(rank=1, memory=memory), server=ServerSgd(0.1))
        state, meant = start(algorithm, clients), torch.zeros(DIM)
        for index in range(12):
            meant += clients.change(state.theta).mean(0)
            state, _ = one_round(algorithm, clients, state, index, [0, 1, 2, 3])
        low = LowRank.of(TENSORS, 1, 0.0)
        total = low.part.take(state.theta / 0.1) + state.errors.mean(0)
        torch.testing.assert_close(total, low.part.take(meant), rtol=1e-4, atol=1e-3)
        paths[memory] = state.theta
    torch.testing.assert_close(paths["own"], paths["mean"], rtol=1e-3, atol=1e-4)


@looped("centre", [torch.zeros(1, DIM), torch.ones(1, DIM)])
@looped("mode", ["aggregated", "independent"])
def test_zero_and_rank_one_updates_leave_nothing_stuck(centre: Tensor, mode: str) -> None:
    clients, algorithm = Matrices(torch.ones(DIM), centre), power_sgd(rank=2, mode=mode)
    state = start(algorithm, clients)
    state, _ = one_round(algorithm, clients, state, 0, [0])
    assert torch.isfinite(state.theta).all()
    torch.testing.assert_close(state.theta, centre[0], rtol=1e-4, atol=1e-5)
    moved = replace(clients, centres=centre + make_clients(1).centres)
    for index in range(1, 40):
        state, _ = one_round(algorithm, moved, state, index, [0])
    assert float((state.theta - moved.centres[0]).norm() / moved.centres.norm()) < 0.05


def test_independent_form_has_own_factors_and_one_exchange() -> None:
    clients, algorithm = make_clients(3), power_sgd(rank=2, mode="independent", iterations=20, memory="own")
    state, ledger = start(algorithm, clients), Ledger()
    after, metrics = one_round(algorithm, clients, state, 0, [0, 1, 2], ledger=ledger)
    low = LowRank.of(TENSORS, 2, 0.0)
    for number, matrix in enumerate(low.split(low.part.take(clients.centres))):
        best = torch.linalg.svdvals(matrix)[:, 2:].square().sum(1)
        mine = low.split(after.errors)[number].square().sum((1, 2))
        assert (mine <= 1.01 * best + 1e-4).all()
    first = low.split(low.part.take(after.theta)[None])[0][0]
    assert int(torch.linalg.matrix_rank(first)) <= 6
    assert float(metrics["exchanges"]) == 1
    assert ledger.counters()["uplink"] == 3 * 32 * low.num_floats
    assert ledger.counters()["broadcast"] == 32 * DIM
