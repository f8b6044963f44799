"""Every client goes through its samples as asked, and its plan depends on nothing but its own name and size."""

import numpy as np
import pytest
import torch

from fedcomp.client import Batching
from fedcomp.random.keys import Key
from fedcomp.simulation.chunks.batch_schedule import _shuffled, batch_schedule, num_steps
from tests.looped import looped

SIZES = np.array([20, 12, 9, 8, 7, 5, 1])
IDS = torch.tensor([4, 1, 3, 6, 0, 5, 2])
KEY = Key(("batch", 0))


def _taken(sizes, batching, ids=IDS, key=KEY) -> list[list[list[int]]]:
    """For each client, the places taken in each of its steps."""
    steps = batch_schedule(ids, sizes, batching, key)
    counts = steps.counts.of_steps
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
    first = [
        int(batch_schedule(IDS[:1], np.array([4]), Batching(4), Key((draw,))).position[0, 0, 0]) for draw in range(4000)
    ]
    share = np.bincount(first, minlength=4) / 4000
    assert np.abs(share - 0.25).max() < 5 * (0.25 * 0.75 / 4000) ** 0.5


@pytest.mark.parametrize("sizes", [[7, 7, 7], [5, 9, 1]], ids=["equal", "unequal"])
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
