"""Directions drawn in blocks: no stretch of a stream is drawn for two of them."""

import pytest
import torch
from torch import Tensor

from fedcomp.compressor.projections import directions
from fedcomp.compressor.projections.directions import Independent
from fedcomp.random.keys import Key


class Noted:
    """Implements `Source` of one stream; notes which draws were asked for."""

    def __init__(self) -> None:
        self.ids = torch.zeros(1, dtype=torch.int64)
        self.asked: list[int] = []

    def draw(self, distribution: str, num: int, start: int) -> Tensor:
        self.asked += range(start, start + num)
        return Key().rademacher(self.ids, num, start)


@pytest.mark.parametrize("block", [128, 256, 1 << 16])
@pytest.mark.parametrize("num", [1, 2, 5])
def test_every_draw_belongs_to_one_place_of_one_direction(monkeypatch, block: int, num: int) -> None:
    monkeypatch.setattr(directions, "BLOCK", block)
    source = Noted()
    scalars = Independent("rademacher", num).project(torch.ones(1, 300), source)  # type: ignore[arg-type]
    assert scalars.shape == (1, num)
    assert sorted(source.asked) == list(range(num * -(-300 // directions.width(300)) * directions.width(300)))
