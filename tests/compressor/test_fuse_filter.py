"""Binary fuse filters: every place is found, false ones at 2^-f, sizes as published, and damage is noticed."""

from dataclasses import replace

import pytest
import torch

from fedcomp.compressor.fuse_filter import FuseFilter
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Ledger, Payload, WireLink
from fedcomp.wire.coding import Unsigned
from fedcomp.wire.coding.contract import WireError
from tests.looped import looped

KEY, IDS = Key(("filter",)), torch.tensor([5])


def _set(dim: int, num: int, seed: int = 0) -> torch.Tensor:
    chosen = torch.randperm(dim, generator=torch.Generator().manual_seed(seed))[:num]
    return torch.zeros(1, dim, dtype=torch.bool).index_fill_(1, chosen, True)


def _sent(codec: FuseFilter, places: torch.Tensor, ids: torch.Tensor = IDS) -> tuple[torch.Tensor, Payload]:
    payload = WireLink(Ledger()).up(codec.encode(places, ids, KEY))
    return codec.decode(payload, ids, KEY, places.shape[1]), payload


@looped("arity", [3, 4])
@looped("dim, num", [(10, 0), (10, 1), (10, 2), (37, 37), (5000, 10), (5000, 1000), (40_000, 9000)])
def test_every_place_is_found(arity: int, dim: int, num: int) -> None:
    places = _set(dim, num)
    found, payload = _sent(FuseFilter(8, arity), places)
    assert found[places].all()
    cells = FuseFilter(8, arity).size(num)[2]
    assert payload.bits.tolist() == [32 + 8 + 8 * cells] == [FuseFilter(8, arity).bits(num)]
    if not num:
        assert not found.any()


def test_the_last_place_alone() -> None:
    places = torch.zeros(1, 1000, dtype=torch.bool)
    places[0, -1] = True
    found, _ = _sent(FuseFilter(16, 3), places)
    assert found[0, -1]


@looped("arity", [3, 4])
@looped("fingerprint", [4, 8, 12, 16])
def test_false_positives(fingerprint: int, arity: int) -> None:
    dim, num = 60_000, 3000
    places = _set(dim, num)
    found, _ = _sent(FuseFilter(fingerprint, arity), places)
    rate = 2.0**-fingerprint
    false, others = int((found & ~places).sum()), dim - num
    assert abs(false - others * rate) < 5 * (others * rate * (1 - rate)) ** 0.5 + 1


BITS = {3: (38.4, 15.4, 11.3, 10.24, 9.50, 9.04), 4: (22.4, 13.4, 11.0, 9.83, 9.01, 8.62)}
"""Of a place, for 10, 100, ... of them, with so many cells each."""


@looped("arity, power, bits", [(arity, power, one) for arity, row in BITS.items() for power, one in enumerate(row, 1)])
def test_bits_of_a_place(arity: int, power: int, bits: float) -> None:
    assert 8 * FuseFilter(8, arity).size(10**power)[2] / 10**power == pytest.approx(bits, abs=0.06)


@looped("arity", [3, 4])
def test_small_sets_can_be_built(arity: int) -> None:
    codec = FuseFilter(8, arity)
    tries = [int(codec.encode(_set(600, num, num), IDS, KEY).fields["tries"].data) for num in range(1, 200, 3)]
    assert max(tries) < 8


def test_senders_have_filters_of_their_own() -> None:
    codec, ids = FuseFilter(), torch.tensor([1, 2, 3])
    places = torch.cat([_set(900, num, num) for num in (0, 40, 200)])
    found, payload = _sent(codec, places, ids)
    assert found[places].all()
    assert payload.fields["keys"].data[:, 0].tolist() == [0, 40, 200]
    alone, _ = _sent(codec, places[1:2], ids[1:2])
    assert torch.equal(alone[0], found[1])


def test_damaged_filters_are_refused() -> None:
    codec, places = FuseFilter(), _set(500, 50)
    payload = codec.encode(places, IDS, KEY)
    cells = payload.fields["cells"]
    cut = replace(cells, data=cells.data[:, :-1], count=cells.count - 1)
    other = Payload({"values": Field(torch.zeros(1, 3, dtype=torch.int64), Unsigned(8))})
    wrong = [
        (Payload({**payload.fields, "cells": cut}), 500),
        (Payload({**payload.fields, "keys": Field(torch.tensor([[900]]), Unsigned(32))}), 500),
        (Payload({**payload.fields, "keys": Field(torch.tensor([[0]]), Unsigned(32))}), 500),
        (payload, 40),
        (other, 500),
    ]
    for damaged, dim in wrong:
        with pytest.raises(WireError):
            codec.decode(damaged, IDS, KEY, dim)
