"""Codes whose bits could be changed without a trace: whatever the sender did not write is refused or another row."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedcomp.wire import WireError
from fedcomp.wire.coding import Arithmetic, Coding, RunLength


@pytest.mark.parametrize("coding", [Arithmetic(), Arithmetic(torch.linspace(0.05, 0.9, 12))], ids=["counted", "known"])
def test_a_flipped_bit_of_an_arithmetic_code_is_refused_or_another_row(coding: Coding) -> None:
    row = torch.tensor([0, 1, 0, 0, 1, 0, 0, 0, 1, 1, 0, 1], dtype=torch.uint8)
    written, refused = coding.write(row), 0
    for place in range(len(written)):
        flipped = written.copy()
        flipped[place] ^= 1
        try:
            other, end = coding.read(flipped, 0, len(row), torch.uint8)
        except WireError:
            refused += 1
        else:
            assert not torch.equal(other, row)
            assert np.array_equal(coding.write(other), flipped[:end])
    assert refused > 0


def test_a_level_just_behind_the_last_place_is_refused() -> None:
    bits = RunLength(1).write(torch.tensor([2, 1, 2]))
    with pytest.raises(WireError, match="^a level at place 2 of 2$"):
        RunLength(1).read(bits, 0, 2, torch.int64)
