"""Codes whose bits could be changed without a trace: whatever the sender did not write is refused or another row."""

from __future__ import annotations

import pytest
import torch

from fedcomp.wire import Field, Payload, WireError
from fedcomp.wire.coding import Arithmetic, Coding, RunLength
from fedcomp.wire.packing import FieldLayout, layout, pack, unpack

CPU = torch.device("cpu")


@pytest.mark.parametrize("coding", [Arithmetic(), Arithmetic(torch.linspace(0.05, 0.9, 12))], ids=["counted", "known"])
def test_a_flipped_bit_of_an_arithmetic_code_is_refused_or_another_row(coding: Coding) -> None:
    row = torch.tensor([[0, 1, 0, 0, 1, 0, 0, 0, 1, 1, 0, 1]], dtype=torch.uint8)
    payload, refused = Payload({"mask": Field(row, coding)}), 0
    message = pack(payload, 0)
    for place in range(8 * len(message)):
        flipped = bytearray(message)
        flipped[place // 8] ^= 1 << (place % 8)
        try:
            other = unpack([bytes(flipped)], layout(payload), CPU)
        except WireError:
            refused += 1
        else:
            assert not torch.equal(other.fields["mask"].data, row)
            assert pack(other, 0) == bytes(flipped)
    assert refused > 0


def test_a_level_just_behind_the_last_place_is_refused() -> None:
    message = pack(Payload({"levels": Field(torch.tensor([[2, 1, 2]]), RunLength(1))}), 0)
    with pytest.raises(WireError, match="a level at index 2 of 2$"):
        unpack([message], {"levels": FieldLayout(2, RunLength(1), torch.int64)}, CPU)
