"""Every client once, with its own data and nobody else's, results in order; its batches hang on its name and size."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedcomp.client import Batching
from fedcomp.core.cohort import Cohort
from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.random.keys import Key
from fedcomp.simulation.chunks import client_data
from fedcomp.simulation.chunks.batch_schedule import _shuffled, batch_schedule, in_order, num_steps
from fedcomp.simulation.chunks.executor import Executor
from tests.conformance import world
from tests.looped import looped
from tests.parts import Sgd, fedavg
from tests.refused import one_line_error

ALGORITHM = fedavg()


@dataclass(frozen=True)
class Two:
    first: Tensor
    second: Tensor


def _executor(chunk_size: int, sizes: tuple[int, ...] = world.SIZES) -> Executor:
    sim = world.simulation(ALGORITHM, sizes=sizes)
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


@looped("chunk_size", [1, 100])
def test_work_that_writes_into_its_rows_is_refused(chunk_size: int) -> None:
    with one_line_error("^what map_clients calls writes into rows 2 of the 2 that it is given, with which the round"):
        _executor(chunk_size).map_clients(
            lambda data, first, second: second.add_(first),
            Cohort.of([0, 2], torch.ones(2)),
            torch.ones(2, 1),
            torch.ones(2, 1),
        )


@looped("chunk_size", [1, 100])
def test_rows_may_be_of_inference_mode(chunk_size: int) -> None:
    with torch.inference_mode():
        rows = torch.ones(2, 1)
    result = _executor(chunk_size).map_clients(lambda data, row: row + 1, Cohort.of([0, 2], torch.ones(2)), rows)
    assert result.tolist() == [[2.0], [2.0]]


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


def test_every_step_changes_samples_anew_however_many_steps_are_gathered_at_once(monkeypatch) -> None:
    image, y = torch.arange(64, dtype=torch.uint8).view(1, 8, 8, 1), torch.zeros(99, dtype=torch.int64)
    same = Samples(image.expand(99, -1, -1, -1).contiguous(), y)
    data = Dataset("images", same, same, "classification", 2, crop_padding=2, flip=True)
    chunk = replace(_executor(3), dataset=data)._data(torch.arange(3), np.array([8, 8, 8]))
    first, *others = steps = [x for x, _, _ in chunk.batches(Batching(8, epochs=5))]
    assert not any(torch.equal(first, other) for other in others)
    monkeypatch.setattr(client_data, "GATHER_BYTES", 2 * first.numel() * 4)
    assert all(torch.equal(x, one) for (x, _, _), one in zip(chunk.batches(Batching(8, epochs=5)), steps, strict=True))


def test_weights_mark_real_samples_only_where_needed() -> None:
    executor = _executor(100)

    def work(data, row):
        shapes = [(tuple(x.shape[:2]), weight is None) for x, _, weight in data.batches(Batching(8))]
        # Sizes 20, 12, 9, 8, 7, 5, 1: the first step is ragged, later ones hold fewer clients.
        assert shapes == [((7, 8), False), ((3, 8), False), ((1, 4), True)]
        return row

    executor.map_clients(work, Cohort.of(range(7), torch.ones(7)), torch.zeros(7, 1))  # type: ignore[arg-type]


@looped("chunk_size", [2, 100])
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
@looped("sizes", [world.SIZES, (8,) * 7])
def test_gradients_are_counted_in_samples(chunk_size: int, sizes: tuple[int, ...]) -> None:
    counted: list = []
    executor = replace(_executor(chunk_size, sizes), count=counted.append)
    cohort = Cohort.of([0, 2, 3], torch.ones(3))
    sim = world.simulation(ALGORITHM)
    start = sim.init().theta.expand(3, -1)
    solver = Sgd(lr=0.1, batch_size=4, epochs=2)
    executor.map_clients(lambda data, theta: solver.run(data, theta, torch.zeros(len(theta), 0), (0, 1)), cohort, start)
    assert sum(int(num) for num in counted) == 2 * sum(sizes[client] for client in cohort.clients)


SIZES = np.array([20, 12, 9, 8, 7, 5, 1])
IDS = torch.tensor([4, 1, 3, 6, 0, 5, 2])
KEY = Key(("batch", 0))


def _taken(sizes, batching, ids=IDS, key=KEY) -> list[list[list[int]]]:
    """For each client, the places taken in each of its steps."""
    steps = batch_schedule(ids, sizes, batching, key)
    counts = steps.counts.of_steps
    assert (steps.position < torch.from_numpy(sizes)[:, None]).all(), "also where none is taken"
    return [
        [steps.position[step, row, : counts[step, row]].tolist() for step in range(len(counts)) if counts[step, row]]
        for row in range(len(sizes))
    ]


@looped("batch_size", [1, 4, 8, 100])
@looped("epochs", [1, 3])
def test_every_pass_takes_every_sample_once(batch_size: int, epochs: int) -> None:
    batching = Batching(batch_size, epochs)
    for size, steps in zip(SIZES, _taken(SIZES, batching)):
        per_pass = -(-int(size) // batch_size)
        assert len(steps) == epochs * per_pass
        for epoch in range(epochs):
            batches = steps[epoch * per_pass : (epoch + 1) * per_pass]
            assert sorted(sum(batches, [])) == list(range(size))
            assert all(len(batch) == min(batch_size, size) for batch in batches[:-1])


def test_passes_differ_in_order() -> None:
    steps = _taken(SIZES, Batching(20, 2))[0]
    assert steps[0] != steps[1]


@looped("num", [1, 3, 11])
def test_steps_wins_over_epochs(num: int) -> None:
    for size, steps in zip(SIZES, _taken(SIZES, Batching(4, 7, steps=num))):
        assert len(steps) == num
        per_pass = -(-int(size) // 4)
        for first in range(0, num - per_pass + 1, per_pass):
            assert sorted(sum(steps[first : first + per_pass], [])) == list(range(size))
    assert num_steps(SIZES, Batching(4, 7, steps=num)).tolist() == [num] * len(SIZES)


@looped("batching", [Batching(4, 2), Batching(100), Batching(3, steps=5), Batching(4, steps=3, replacement=True)])
def test_plan_of_a_client_does_not_depend_on_its_chunk(batching: Batching) -> None:
    whole = _taken(SIZES, batching)
    for row in range(len(SIZES)):
        alone = _taken(SIZES[row : row + 1], batching, IDS[row : row + 1])
        assert alone[0] == whole[row]


def test_equal_sizes_take_the_short_way_to_the_same_plan() -> None:
    equal, batching = np.full(3, 8), Batching(4, 2)
    ids = torch.tensor([7, 8, 9])
    together = _taken(equal, batching, ids)
    mixed = _taken(np.array([9, 8, 8, 8]), batching, torch.tensor([1, 7, 8, 9]))
    assert together == mixed[1:]


def test_in_order_every_sample_is_taken_once() -> None:
    steps = in_order(IDS[:3], np.array([5, 2, 1]), 2)
    assert steps.position.tolist() == [[[0, 1], [0, 1], [0, 0]], [[2, 3], [0, 0], [0, 0]], [[4, 0], [0, 0], [0, 0]]]
    assert steps.counts.of_steps.tolist() == [[2, 2, 1], [2, 0, 0], [1, 0, 0]]


def test_rounds_differ() -> None:
    assert _taken(SIZES, Batching(4)) != _taken(SIZES, Batching(4), key=Key(("batch", 1)))


def test_with_replacement_is_uniform() -> None:
    # 5 places, 20,000 draws: each share is within 5 standard errors of 1/5.
    batching = Batching(20, steps=1000, replacement=True)
    steps = batch_schedule(torch.tensor([3]), np.array([5]), batching, KEY)
    share = np.bincount(steps.position.flatten().numpy(), minlength=5) / 20_000
    assert np.abs(share - 0.2).max() < 5 * (0.2 * 0.8 / 20_000) ** 0.5


def test_order_is_uniform() -> None:
    # First place of 4 over 4,000 keys.
    plans = (batch_schedule(IDS[:1], np.array([4]), Batching(4), Key((draw,))) for draw in range(4000))
    first = [int(plan.position[0, 0, 0]) for plan in plans]
    share = np.bincount(first, minlength=4) / 4000
    assert np.abs(share - 0.25).max() < 5 * (0.25 * 0.75 / 4000) ** 0.5


@looped("sizes", [[7, 7, 7], [5, 9, 1]])
def test_equal_words_keep_the_order_of_places(sizes: list[int]) -> None:
    """As a stable argsort, which is what a GPU runs."""

    class Tied(Key):
        def bits(self, ids_M: torch.Tensor, num: int, start: int = 0) -> torch.Tensor:
            return super().bits(ids_M, num, start) % 3 + (1 << 32) - 3

    held = np.array(sizes)
    found = _shuffled(torch.arange(3), held, Tied())
    words = Tied().bits(torch.arange(3), max(sizes))
    for row, size in enumerate(sizes):
        assert torch.equal(found[row, :size], words[row, :size].argsort(stable=True))
        assert found[row, size:].tolist() == list(range(size, max(sizes)))
