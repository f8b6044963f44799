"""No compression: every entry as a float of 32 or 16 bits.

The uncompressed uplink of PSGD and FedAvg (H. B. McMahan et al., AISTATS 2017), 32 bits a parameter. With
`precision: float16` or `bfloat16` entries are rounded to nearest, and values beyond the largest float are clamped.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedcomp.compressor.contract import Codec
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float

PRECISIONS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Dense(Codec):
    """Sends x itself."""

    precision: Literal["float32", "float16", "bfloat16"] = "float32"
    contractive = True
    near_lossless = True

    @property
    def unbiased(self) -> bool:
        """Rounding to nearest is a bias, if a small one."""
        return self.precision == "float32"

    def omega(self, layers: tuple[int, ...], num_senders: int) -> float:
        return 0.0

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """D floats a row."""
        dtype = PRECISIONS[self.precision]
        if dtype != torch.float32:
            largest = torch.finfo(dtype).max
            x = x.clamp(-largest, largest)
        return Payload({"values": Field(x.to(dtype), Float(dtype))})

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """The floats as float32."""
        (values,) = payload.expect(values=common.dim)
        return values.to(torch.float32)
