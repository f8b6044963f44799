"""How the entries of a field become bits. One file a family of codes; `contract.py` says what a code must do."""

from fedcomp.wire.coding.arithmetic import Arithmetic
from fedcomp.wire.coding.contract import Coding, bits_for
from fedcomp.wire.coding.digits import Digits
from fedcomp.wire.coding.elias import Elias
from fedcomp.wire.coding.fixed import FLOAT_WIDTH, Float, Unsigned
from fedcomp.wire.coding.places import Ascending, Bitmap
from fedcomp.wire.coding.rice import Rice
from fedcomp.wire.coding.run_length import RunLength
from fedcomp.wire.coding.shortest import Shortest

__all__ = [
    "FLOAT_WIDTH",
    "Arithmetic",
    "Ascending",
    "Bitmap",
    "Coding",
    "Digits",
    "Elias",
    "Float",
    "Rice",
    "RunLength",
    "Shortest",
    "Unsigned",
    "bits_for",
]
