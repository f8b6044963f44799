"""Draws of many repetitions at once are the draws of each."""

import pytest
import torch

from fedcomp.random.keys import Key
from fedcomp.simulation.monte_carlo.vmap_keys import SHORT, ClientKey, NotVmappable, VmappedKey
from tests.looped import looped

KEYS = tuple(Key(("run", number)) for number in range(3))
N = 5
DRAWS = [("bits", (7,)), ("bits", (6, 4)), ("bits", (SHORT + 1,)), ("uniform", (3,)), ("uniform", (SHORT + 3,))]
DRAWS += [("rademacher", (40,)), ("normal", (5,)), ("choice", (2, 9))]


@looped("name, options", DRAWS)
def test_clients_of_all_repetitions(name, options) -> None:
    ids = torch.tensor([14, 0, 6, 3, 10, 5])
    drawn = getattr(ClientKey((), KEYS, N).fold_in("batch", 2), name)(ids, *options)
    for row, number in enumerate(ids.tolist()):
        alone = getattr(KEYS[number // N].fold_in("batch", 2), name)(torch.tensor([number % N]), *options)
        assert torch.equal(drawn[row], alone[0])
    assert getattr(ClientKey((), KEYS, N), name)(ids[:0], *options).shape[0] == 0


@looped("name, options", DRAWS)
def test_inside_vmap(name, options) -> None:
    ids, anchor = torch.tensor([[0, 3], [1, 2], [4, 0]]), torch.arange(3)

    def draw(own, number):
        key = VmappedKey((), KEYS, number).fold_in("update")
        return getattr(key, name)(own, *options), getattr(key, name)(torch.tensor([7]), *options)

    drawn, shared = torch.func.vmap(draw)(ids, anchor)
    for number, key in enumerate(KEYS):
        assert torch.equal(drawn[number], getattr(key.fold_in("update"), name)(ids[number], *options))
        assert torch.equal(shared[number], getattr(key.fold_in("update"), name)(torch.tensor([7]), *options))


def test_one_generator_for_all_is_refused() -> None:
    for key in (ClientKey((), KEYS, N), VmappedKey((), KEYS, torch.arange(3))):
        with pytest.raises(NotVmappable, match="one generator"):
            key.fold_in("x").generator()
