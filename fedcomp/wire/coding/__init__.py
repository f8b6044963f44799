"""Codings: how the entries of a field are written as bits. `contract.py` has the protocol that each implements."""

from fedcomp.wire.coding.arithmetic import Arithmetic
from fedcomp.wire.coding.contract import Coding, bits_for
from fedcomp.wire.coding.digits import Digits
from fedcomp.wire.coding.elias import Elias
from fedcomp.wire.coding.fixed import FiniteFloat, Float, Unsigned
from fedcomp.wire.coding.index_sets import Ascending, Bitmap, Rice
from fedcomp.wire.coding.run_length import RunLength
from fedcomp.wire.coding.shortest import Shortest

__all__ = [
    "Arithmetic",
    "Ascending",
    "Bitmap",
    "Coding",
    "Digits",
    "Elias",
    "FiniteFloat",
    "Float",
    "Rice",
    "RunLength",
    "Shortest",
    "Unsigned",
    "bits_for",
]
