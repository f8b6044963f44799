"""DiLoCo is FedAvg with AdamW and Nesterov; Streaming DiLoCo step by step by hand, its fragments, bits, refusals."""

from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Setup
from fedcomp.algorithm.streaming_diloco import StreamingDiLoCo
from fedcomp.algorithm.updates.fragments import fragments_of
from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from fedcomp.core.parameter_layout import BIAS, WEIGHT, ParameterTensor
from fedcomp.core.pytree import flatten
from fedcomp.random.keys import Key
from tests.algorithm.heterogeneous import D, N, Run, problem
from tests.conformance import world
from tests.looped import looped
from tests.parts import DENSE, FP4, GD, Adam, Compressor, ErrorFeedback, FedAvg, Muon, ServerSgd, Sgd, TopK
from tests.refused import refused
from tests.rounds import rounds
from tests.simulation.user_module import Dropping

WHOLE = problem(0)
LASTING = Adam(lr=0.05, steps=6, weight_decay=0.3, decoupled=True)
ALIKE = replace(WHOLE, hessians=WHOLE.hessians[:1].expand(N, -1, -1), centres=WHOLE.centres[:1].expand(N, -1))


def _diloco(client: Adam, persist: bool) -> FedAvg:
    return FedAvg(client, ServerSgd(), DENSE, DENSE, "uniform", persist_optimizer=persist)


def test_two_rounds_of_alike_clients_are_one_training_of_twice_the_steps() -> None:
    """With an outer rate of 1 and no momentum; without the clients' moments it is another."""
    whole = Run(_diloco(replace(LASTING, steps=12), False), ALIKE).last(1)
    kept, fresh = (Run(_diloco(LASTING, persist), ALIKE).last(2) for persist in (True, False))
    assert torch.allclose(kept.theta, whole.theta, rtol=0, atol=1e-5)
    assert not torch.allclose(fresh.theta, whole.theta, rtol=0, atol=1e-2)


def test_steps_of_clients_who_came_are_counted_and_without_moments_there_are_none() -> None:
    run = Run(_diloco(LASTING, True), WHOLE, 3)
    met = torch.bincount(torch.cat([run.cohort(index).ids for index in range(4)]), minlength=N)
    assert run.last(4).local[-1][:, 0].tolist() == (6 * met).tolist()
    assert not any(name.startswith("local") for name in flatten(Run(_diloco(LASTING, False), WHOLE).init()))


def test_the_choices_are_diloco() -> None:
    config = compose(["client=adamw", "server=nesterov", "algorithm.persist_optimizer=true"])
    simulation, _ = build_simulation(config, torch.device("cpu"))
    adamw = Adam(lr=0.0004, weight_decay=0.1, decoupled=True)
    assert simulation.algorithm == FedAvg(adamw, NESTEROV, DENSE, DENSE, persist_optimizer=True)


CLIENTS = replace(problem(0), layers=(20, 12, 8))
NESTEROV = ServerSgd(0.7, 0.9, nesterov=True)
ADAMW = Adam(lr=0.02, steps=3, batch_size=4, weight_decay=0.1, decoupled=True)
WAYS = [(1, 4, 0, 0.0), (2, 3, 0, 0.5), (3, 2, 1, 0.0), (3, 2, 2, 0.5), (2, 3, 4, 0.0), (3, 2, 5, 0.25)]


def _streaming(client, fragments: int, tau: int, alpha: float = 0.0, up=DENSE, down=DENSE):
    return StreamingDiLoCo(client, NESTEROV, up, down, fragments, "sequential", tau, alpha, "uniform")


def _by_hand(num: int, h: int, tau: int, alpha: float, rounds: int) -> tuple[Tensor, Tensor]:
    """(global model, workers' models) after so many rounds of h steps, one step after another, as the paper has it."""
    theta, velocity = torch.zeros(2, D, dtype=torch.float64)
    workers, cuts = torch.zeros(N, D, dtype=torch.float64), (0, 20, 32, 40) if num == 3 else (0, 20, 40)
    columns = [slice(0, D)] if num == 1 else [slice(*ends) for ends in pairwise(cuts)]
    for t in range(1, rounds * h + 1):
        workers = workers - 0.3 * (CLIENTS.hessians @ (workers - CLIENTS.centres)[:, :, None])[:, :, 0]
        for p, own in enumerate(columns):  # t_p = p h
            if t >= (p + num) * h and (t - p * h) % (num * h) == 0:
                change = (workers[:, own] - theta[own]).mean(0)
                velocity[own] = 0.9 * velocity[own] + change
                theta[own] += 0.7 * (change + 0.9 * velocity[own])
        for p, own in enumerate(columns):
            if t - tau >= (p + num) * h and (t - tau - p * h) % (num * h) == 0:
                workers[:, own] = alpha * workers[:, own] + (1 - alpha) * theta[own]
    return theta, workers


@looped("num, h, tau, alpha", WAYS)
@looped("num_rounds", [1, 7, 12])
def test_it_is_the_papers_loop_over_steps(num: int, h: int, tau: int, alpha: float, num_rounds: int) -> None:
    state = Run(_streaming(Sgd(lr=0.3, steps=h), num, tau, alpha), CLIENTS).last(num_rounds)
    theta, workers = _by_hand(num, h, tau, alpha, num_rounds)
    torch.testing.assert_close(state.theta.double(), theta, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(state.workers.double(), workers, rtol=1e-4, atol=1e-4)
    assert theta.any() == (num_rounds >= num)


@looped("up", [DENSE, Compressor(TopK(0.2), ErrorFeedback()), Compressor(FP4("stochastic"))])
def test_one_fragment_without_delay_is_diloco_bit_for_bit(up: Compressor) -> None:
    streaming = _streaming(ADAMW, 1, 0, up=up)
    diloco = FedAvg(ADAMW, NESTEROV, up, DENSE, "uniform", persist_optimizer=True)
    for mine, theirs in zip(_rounds(streaming), _rounds(diloco), strict=True):
        assert torch.equal(mine.after.theta, theirs.after.theta)
        assert torch.equal(mine.metrics["update/norm"], theirs.metrics["update/norm"])


def _rounds(algorithm, num: int = 4, module=world.mlp):
    return rounds(world.simulation(algorithm, module, world.FULL, rounds=num))


@looped("client", [ADAMW, Muon(lr=0.02, steps=3, batch_size=4, skip_last=0)])
@looped("module", [world.mlp, Dropping])
def test_workers_that_keep_their_own_train_alone_whenever_fragments_arrive(client, module) -> None:
    """The two parts of a round take the same batches and masks as the whole; the global model moves all the same."""
    plain, split, late = (list(_rounds(_streaming(client, 2, tau, 1.0), 5, module)) for tau in (0, 1, 5))
    for one, *others in zip(plain, split, late):
        for other in others:
            assert torch.equal(one.after.workers, other.after.workers)
            assert torch.equal(one.after.theta, other.after.theta)
            torch.testing.assert_close(one.metrics["train/loss"], other.metrics["train/loss"])
    assert not torch.equal(plain[0].after.theta, plain[-1].after.theta)


def test_a_period_sends_as_many_bits_as_diloco_and_each_fragment_once() -> None:
    run = Run(_streaming(Sgd(lr=0.1, steps=2), 3, 1), CLIENTS)
    for (*_, bits), size in zip(run.rounds(8), (0, 0, 20, 12, 8, 20, 12, 8), strict=True):
        assert bits["downlink"] == bits["uplink"] == 32 * N * size


def test_memories_are_of_fragments() -> None:
    up = Compressor(TopK(k=4, positions="index"), ErrorFeedback())
    run = Run(_streaming(Sgd(lr=0.1, steps=2), 3, 1, up=up, down=up), CLIENTS)
    state = run.last(6)
    assert [memory.sender.shape for memory in state.uplink] == [(N, 20), (N, 12), (N, 8)]
    assert [memory.sender.shape for memory in state.downlink] == [(1, 20), (1, 12), (1, 8)]
    assert run.bits()["uplink"] == N * 4 * (32 + 5), "4 entries of the first fragment, which has 20"


TENSORS = tuple(ParameterTensor(size, WEIGHT if size > 9 else BIAS) for size in (50, 5, 40, 4, 30, 3))


@looped(
    "pattern, num, layers",
    [
        ("balanced", 2, [(50, 5, 4, 3), (40, 30)]),
        ("balanced", 3, [(50,), (40,), (5, 4, 30, 3)]),
        ("strided", 2, [(50, 40, 30), (5, 4, 3)]),
        ("sequential", 2, [(50, 5), (40, 4, 30, 3)]),
        ("sequential", 6, [(50,), (5,), (40,), (4,), (30,), (3,)]),
        ("strided", 1, [(50, 5, 40, 4, 30, 3)]),
    ],
)
def test_every_tensor_is_in_one_fragment(pattern: str, num: int, layers: list[tuple[int, ...]]) -> None:
    found = fragments_of(TENSORS, num, pattern)
    assert [one.part.layers for one in found] == layers
    assert [tuple(tensor.size for tensor in one.tensors) for one in found] == layers
    columns = torch.cat([one.part.take(torch.arange(132)) for one in found])
    assert sorted(columns.tolist()) == list(range(132))


def test_neighbours_before_a_large_tensor_leave_no_fragment_empty() -> None:
    found = fragments_of((*TENSORS[1::2], TENSORS[0]), 4, "sequential")
    assert [one.part.layers for one in found] == [(5,), (4,), (3,), (50,)]


PARTS = {"client": ADAMW, "server": NESTEROV, "uplink": DENSE, "downlink": DENSE}
test_wrong_options = refused(
    [
        ({"tau": 6}, "algorithm.tau=6 must be .* client.steps = 6: a fragment arrives before it is sent again"),
        ({"client": Adam(lr=0.1)}, "algorithm=streaming_diloco needs client.steps"),
        ({"client": GD(lr=0.1)}, "makes no sense for client=gd"),
        ({"fragments": 4}, "algorithm.fragments=4 is more than the 3 parameter tensors"),
        (lambda: _diloco(GD(lr=0.1), True), "persist_optimizer=true makes no sense for client=gd, which cannot go on"),
    ],
    lambda **options: StreamingDiLoCo(**(PARTS | options)).init(
        torch.zeros(D), torch.zeros(0), Setup(N, CLIENTS.tensors, Key())
    ),
)
