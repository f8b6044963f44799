"""Bits of line with headers: the specification's table."""

from typing import Any

import numpy as np
import pytest

from fedcomp.network.headers import Header
from tests.looped import looped

TLS = {"message": 22, "packet": 40, "payload": 1460}


def test_the_table_of_line_bits() -> None:
    bits = np.array([0, 32, 160, 61_738, 1_974_592, 61_864_256])
    assert Header.of(TLS).line_bits(bits).tolist() == [0, 528, 656, 63_840, 2_029_168, 63_559_472]
    assert Header.of(TLS).line_bits(32) == 528


@looped(
    "given, says",
    [
        ({"message": 1}, "must have message, packet, payload"),
        (3, r"network.header=3 must have message, packet, payload"),
        ({**TLS, "packet": -1}, r"network.header.packet=-1 must be a whole number, 0 or more: a number of bytes"),
        ({**TLS, "payload": 0}, r"network.header.payload=0 must be a whole number, 1 or more: a number of bytes"),
        ({**TLS, "message": float("nan")}, r"network.header.message=nan must be a whole number"),
    ],
)
def test_wrong_headers(given: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Header.of(given)
