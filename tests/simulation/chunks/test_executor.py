"""Chunks: every client once, results in the cohort's order, its own data and nobody else's."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from fedcomp.client import Batching
from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key
from fedcomp.simulation.chunks.executor import Executor
from tests.conformance import world
from tests.looped import looped
from tests.parts import Sgd, fedavg

ALGORITHM = fedavg()


@dataclass(frozen=True)
class Two:
    first: Tensor
    second: Tensor


def _executor(chunk_size: int) -> Executor:
    sim = world.simulation(ALGORITHM)
    return Executor(sim.dataset, sim.shards, sim.model, Key(("round", 0)), chunk_size)


@looped("chunk_size", [1, 2, 3, 100])
def test_results_come_back_in_the_order_of_the_cohort(chunk_size: int) -> None:
    cohort = Cohort.of([0, 2, 4, 5, 6], torch.ones(5))
    mine = torch.arange(5.0)[:, None]

    def work(data, row):
        return Two(data.ids.float(), torch.cat([row, data.num_samples[:, None].float()], 1))

    result = _executor(chunk_size).map_clients(work, cohort, mine)
    assert result.first.tolist() == [0, 2, 4, 5, 6]
    assert result.second[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert result.second[:, 1].tolist() == [world.SIZES[client] for client in cohort.clients]


@looped("chunk_size", [1, 3, 100])
def test_clients_see_their_own_samples_once_an_epoch(chunk_size: int) -> None:
    executor = _executor(chunk_size)
    cohort = Cohort.of(range(7), torch.ones(7))  # type: ignore[arg-type]
    seen = {}

    def work(data, row):
        for x, _, weight in data.batches(Batching(4)):
            for place, client in enumerate(data.ids[: len(x)].tolist()):
                real = len(x[place]) if weight is None else int(weight[place].sum())
                seen.setdefault(client, []).extend(x[place, :real].tolist())
        return row

    executor.map_clients(work, cohort, torch.zeros(7, 1))
    ends = torch.tensor(world.SIZES).cumsum(0).tolist()
    for client, (size, end) in enumerate(zip(world.SIZES, ends)):
        own = executor.dataset.train.x[end - size : end].tolist()
        assert sorted(seen[client]) == sorted(own)


def test_weights_mark_real_samples_only_where_needed() -> None:
    executor = _executor(100)

    def work(data, row):
        shapes = [(tuple(x.shape[:2]), weight is None) for x, _, weight in data.batches(Batching(8))]
        # Sizes 20, 12, 9, 8, 7, 5, 1: the first step is ragged, later ones hold fewer clients.
        assert shapes == [((7, 8), False), ((3, 8), False), ((1, 4), True)]
        return row

    executor.map_clients(work, Cohort.of(range(7), torch.ones(7)), torch.zeros(7, 1))  # type: ignore[arg-type]


@pytest.mark.parametrize("chunk_size", [2, 100])
def test_work_is_done_in_float64_and_comes_back_as_messages_carry_it(chunk_size: int) -> None:
    executor = replace(_executor(chunk_size), dtype=torch.float64)
    cohort = Cohort.of([0, 1, 3], torch.ones(3))
    seen = []

    def work(data, row):
        seen.append(row.dtype)
        return Two(row + 1e-12 - row, data.num_samples)

    result = executor.map_clients(work, cohort, torch.ones(3, 1))
    assert set(seen) == {torch.float64}
    assert (result.first.dtype, result.second.dtype) == (torch.float32, torch.int64)
    assert torch.allclose(result.first, torch.full((3, 1), 1e-12), rtol=1e-3, atol=0)


@looped("chunk_size", [1, 3, 100])
def test_gradients_are_counted_in_samples(chunk_size: int) -> None:
    counted: list = []
    executor = replace(_executor(chunk_size), count=counted.append)
    cohort = Cohort.of([0, 2, 3], torch.ones(3))
    sim = world.simulation(ALGORITHM)
    start = sim.init().theta.expand(3, -1)
    solver = Sgd(lr=0.1, batch_size=4, epochs=2)
    executor.map_clients(lambda data, theta: solver.run(data, theta, torch.zeros(len(theta), 0), (0, 1)), cohort, start)
    assert sum(int(num) for num in counted) == 2 * sum(world.SIZES[client] for client in cohort.clients)
