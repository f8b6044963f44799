"""Entropies and bounds of docs/results/limits.md on messages whose figures are known."""

import math

import pytest
import torch

from fedcomp.compressor.quantisers.sign import Sign
from fedcomp.wire import Field
from fedcomp.wire.coding import Ascending, Bitmap, Float, Rice, Unsigned
from scripts.limits import Row, entropy_of, measure
from tests.looped import looped


@looped(
    "field, wanted",
    [
        (Field(torch.tensor([[0, 0, 0, 0]]), Unsigned(3)), 0),
        (Field(torch.tensor([[0, 1, 2, 3]]), Unsigned(3)), 8),
        (Field(torch.tensor([[0, 0, 0, 1]]), Unsigned(1)), 4 * (0.75 * math.log2(4 / 3) + 0.25 * 2)),
        (Field(torch.tensor([[0.0, 0.0]]), Float()), 64),
        (Field(torch.tensor([[2, 5]]), Ascending(64)), math.log2(64 * 63 / 2)),
        (Field(torch.tensor([[2, 2]]), Rice(4, 64)), 10),  # as it is sent: shorter than log2 of the number of sets
        (Field(torch.tensor([[0, 1] * 8], dtype=torch.uint8), Bitmap(8)), math.log2(math.comb(16, 8))),
    ],
)
def test_entropies_by_hand(field: Field, wanted: float) -> None:
    assert entropy_of(field) == pytest.approx(wanted)


def test_a_row_beside_the_bound() -> None:
    row = Row(bits=2.0, entropy=1.5, error=2**-2, deviation=0.0)
    assert (row.bound, row.wasted, row.wasted_at_best) == (2**-4, 1.0, 0.5)


def test_signs_of_gaussian_vectors() -> None:
    found = measure(Sign(), torch.randn(8, 4096, generator=torch.Generator().manual_seed(0)), (4096,))
    assert found.bits == 1 + 32 / 4096
    assert found.error == pytest.approx(1 - 2 / math.pi, abs=5 * found.deviation)
