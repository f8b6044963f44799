"""PowerSGD on quadratics: what one machine would compute, errors, warm start, the independent form, what is sent."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context, Setup
from fedcomp.algorithm.low_rank.matrices import LowRank
from fedcomp.algorithm.low_rank.powersgd import PowerSGD
from fedcomp.core.cohort import Cohort
from fedcomp.core.parameter_layout import BIAS, NORMALISATION, WEIGHT, ParameterTensor
from fedcomp.random.keys import Key
from fedcomp.wire import Ledger, Link
from tests.algorithm.heterogeneous import STEP, Heterogeneous
from tests.looped import looped
from tests.parts import ServerSgd
from tests.refused import refused

TENSORS = (ParameterTensor(96, WEIGHT, 8), ParameterTensor(12, BIAS), ParameterTensor(60, WEIGHT, 20))

DIM = 168


def num_floats(low: LowRank) -> int:
    """Floats of a message up, both exchanges together: P, Q and the dense entries."""
    return sum(one.rank * (one.outputs + one.inputs) for one in low.matrices) + low.part.rest.size


class Matrices(Heterogeneous):
    """Quadratics with curvature 1 over weight matrices of 12 x 8 and 3 x 20 and a bias: the change is b_i - theta."""

    tensors = TENSORS

    @classmethod
    def of(cls, centres: Tensor) -> "Matrices":
        return cls(torch.eye(DIM, dtype=torch.float64).expand(len(centres), -1, -1), centres, layers=(96, 12, 60))


def make_clients(num: int = 4) -> Matrices:
    generator = torch.Generator().manual_seed(0)
    return Matrices.of(torch.randn(1, DIM, generator=generator) + torch.randn(num, DIM, generator=generator))


def power_sgd(**options: Any) -> PowerSGD:
    return PowerSGD(STEP, ServerSgd(), **({"min_ratio": 0.0} | options))


def start(algorithm: Any, clients: Matrices) -> Any:
    return algorithm.init(torch.zeros(DIM), torch.zeros(0), Setup(clients.num_clients, TENSORS, Key(("power",))))


def one_round(
    algorithm: Any,
    clients: Matrices,
    state: Any,
    index: int,
    who: list[int],
    weight: Tensor | None = None,
    ledger: Ledger | None = None,
) -> Any:
    weight = torch.full((len(who),), 1 / len(who)) if weight is None else weight
    ctx = Context(index, 99, Key(("power", index)), Link(ledger or Ledger()), clients)
    return algorithm.round(state, Cohort.of(who, weight), ctx)


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
    assert float(metrics["exchanges"]) == 2


def test_warm_start_finds_the_best_subspace_and_fresh_starts_do_not() -> None:
    """A matrix with singular values 1 / i that stays: the server's learning rate is 0."""
    generator = torch.Generator().manual_seed(1)
    left, right = (torch.linalg.qr(torch.randn(side, 8, generator=generator)).Q for side in (12, 8))
    centre = torch.zeros(1, DIM)
    centre[0, :96] = ((left / torch.arange(1.0, 9)) @ right.T).flatten()
    clients = Matrices.of(centre)
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

    def step(self, update: Tensor, slots: tuple[Tensor, ...], theta: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        return torch.zeros_like(update), slots


def test_nothing_is_lost_with_all_clients_and_own_is_mean() -> None:
    clients = make_clients()
    paths = {}
    for memory in ("own", "mean"):
        algorithm = replace(power_sgd(rank=1, memory=memory), server=ServerSgd(0.1))
        state, meant = start(algorithm, clients), torch.zeros(DIM)
        for index in range(12):
            meant += clients.changes(state.theta).mean(0)
            state, _ = one_round(algorithm, clients, state, index, [0, 1, 2, 3])
        low = LowRank.of(TENSORS, 1, 0.0)
        total = low.part.take(state.theta / 0.1) + state.errors.mean(0)
        torch.testing.assert_close(total, low.part.take(meant), rtol=1e-4, atol=1e-3)
        paths[memory] = state.theta
    torch.testing.assert_close(paths["own"], paths["mean"], rtol=1e-3, atol=1e-4)


@looped("centre", [torch.zeros(1, DIM), torch.ones(1, DIM)])
@looped("mode", ["aggregated", "independent"])
def test_zero_and_rank_one_updates_leave_nothing_stuck(centre: Tensor, mode: str) -> None:
    clients, algorithm = Matrices.of(centre), power_sgd(rank=2, mode=mode)
    state = start(algorithm, clients)
    state, _ = one_round(algorithm, clients, state, 0, [0])
    assert torch.isfinite(state.theta).all()
    torch.testing.assert_close(state.theta, centre[0], rtol=1e-4, atol=1e-5)
    moved = replace(clients, centres=centre + make_clients(1).centres)
    for index in range(1, 40):
        state, _ = one_round(algorithm, moved, state, index, [0])
    assert float((state.theta - moved.centres[0]).norm() / moved.centres.norm()) < 0.05


@looped("decay", [1.0, 0.5])
def test_a_client_that_does_not_move_sends_its_memory_and_logs_finite_numbers(decay: float) -> None:
    """As in the last round of a cosine; a value of a client that is infinite would end the run."""
    clients, algorithm = Matrices.of(torch.zeros(2, DIM)), power_sgd(rank=1, decay=decay)
    state = start(algorithm, clients)
    left = 9 * make_clients(2).centres[:, : state.errors.shape[1]]
    state, metrics = one_round(algorithm, clients, replace(state, errors=left), 0, [0, 1])
    assert float(state.theta.norm()) > 9 * decay
    sent = LowRank.of(TENSORS, 1, 0.0).part.take(state.theta)
    torch.testing.assert_close(sent + state.errors.mean(0), decay * left.mean(0), rtol=1e-4, atol=1e-4)
    assert all(bool(value.isfinite().all()) for value in metrics.values())


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
    assert ledger.counters()["uplink"] == 3 * 32 * num_floats(low)
    assert ledger.counters()["broadcast"] == 32 * DIM


def _resnet18() -> list[ParameterTensor]:
    """ResNet-18 for 32 x 32 images and 10 classes."""
    tensors, channels = [ParameterTensor(64 * 27, WEIGHT, 27)], 64
    norms = [64]
    for width in (64, 128, 256, 512):
        for block in range(2):
            tensors += [ParameterTensor(width * channels * 9, WEIGHT, channels * 9)]
            tensors += [ParameterTensor(width * width * 9, WEIGHT, width * 9)]
            norms += [width, width]
            if block == 0 and width != 64:
                tensors += [ParameterTensor(width * channels, WEIGHT, channels)]
                norms += [width]
            channels = width
    tensors += [ParameterTensor(2 * width, NORMALISATION) for width in norms]
    return [*tensors, ParameterTensor(5120, WEIGHT, 512), ParameterTensor(10, BIAS)]


@looped("rank, floats", [(1, 45_935), (2, 82_260), (4, 154_910)])
def test_floats_of_the_papers_network(rank: int, floats: int) -> None:
    tensors = _resnet18()
    assert sum(tensor.size for tensor in tensors) == 11_173_962
    low = LowRank.of(tensors, rank, 0.0)
    assert num_floats(low) == floats
    assert round(11_173_962 / num_floats(low), 1) == {1: 243.3, 2: 135.8, 4: 72.1}[rank]


def test_a_tensor_of_one_row_and_which_matrices_are_worth_it() -> None:
    low = LowRank.of((ParameterTensor(7, WEIGHT, 7),), 3, 0.0)
    assert (low.matrices[0].rank, num_floats(low), low.part.size) == (1, 8, 7)
    assert [(one.outputs, one.inputs) for one in LowRank.of(TENSORS, 2, 2.4).matrices] == [(12, 8)]


@looped("mode", ["aggregated", "independent"])
def test_a_model_sent_down_is_the_same_run_and_nobody_else_is_told(mode: str) -> None:
    """Up to the last bit, since float32 goes down either way; 4 clients, 2 of them in a round."""
    clients, found = make_clients(), {}
    for downlink in ("factors", "model"):
        algorithm = power_sgd(rank=2, mode=mode, sends=downlink)
        state, bits = start(algorithm, clients), []
        for index, who in enumerate(([0, 1], [1, 3], [0, 2])):
            ledger = Ledger()
            state, _ = one_round(algorithm, clients, state, index, who, ledger=ledger)
            bits.append(ledger.counters())
        found[downlink] = state, bits
    (one, told), (other, asked) = found.values()
    assert torch.equal(one.theta, other.theta)
    assert torch.equal(one.errors, other.errors)
    assert [one["uplink"] for one in told] == [one["uplink"] for one in asked]
    p, q = 2 * (12 + 3), 2 * (8 + 20)
    if mode == "aggregated":  # the first Q follows from the seed
        assert [one["downlink"] for one in told] == [4 * 32 * (p + q + 12)] * 3
        assert [one["downlink"] for one in asked] == [2 * 32 * (DIM + p), *[2 * 32 * (DIM + p + q)] * 2]
    else:
        assert [one["downlink"] for one in told] == [4 * 32 * DIM] * 3
        assert [one["downlink"] for one in asked] == [2 * 32 * DIM] * 3


def _init(tensors: tuple[ParameterTensor, ...] = TENSORS, **options: Any) -> None:
    size = sum(tensor.size for tensor in tensors)
    power_sgd(**options).init(torch.zeros(size), torch.zeros(0), Setup(2, tensors, Key()))


test_wrong_options = refused(
    [
        ({"refresh_every": -1}, "algorithm.refresh_every=-1 must be a whole number, 0 or more: a number of rounds"),
        ({"memory": "mean", "sends": "model"}, r"algorithm.memory=mean is what is left of the mean, .*sends=model"),
        ({"tensors": (ParameterTensor(9, BIAS),)}, "algorithm=powersgd compresses weight matrices, and this model has"),
        ({"rank": 9}, "algorithm.rank=9 is above the smaller side of every weight matrix.* at most 8"),
        ({"rank": 4, "min_ratio": 5.0}, "algorithm.rank=4 saves less than algorithm.min_ratio=5.0 of every matrix"),
    ],
    _init,
)
