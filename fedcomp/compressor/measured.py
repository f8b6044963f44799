"""A codec whose messages say by how much it changed what was sent: for `codec_error=true`.

The sender decodes its own message. Nothing of this is sent: the link takes it off the message.

Shape legend: M senders, D entries.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedcomp.compressor.contract import Codec, CodecWrapper, decoded, encoded
from fedcomp.random.keys import Key
from fedcomp.wire import Payload, SharedKnowledge

ERROR, THEORY = "codec/error", "codec/theory"


@dataclass(frozen=True)
class MeasuredCodec(CodecWrapper):
    """`codec`, which also measures."""

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """The codec's messages, with `relative_errors` of rows x [M, D] measured."""
        payload = encoded(self.codec, x, common, sender_key)
        return replace(payload, measured=relative_errors(self.codec, x, decoded(self.codec, payload, common)))

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        return self.codec.decode(payload, common)


def relative_errors(codec: Codec, x: Tensor, decoded: Tensor) -> dict[str, Tensor]:
    """[M] float64 ||C(x) - x||^2 / ||x||^2 of each row, and what the codec's closed form says of it, if it has one.

    A row of zeros that is decoded to zeros has no error.
    """
    squares = x.double().square().sum(1)
    found = {ERROR: (decoded.double() - x).square().sum(1)}
    theory = codec.expected_error(x)
    if theory is not None:
        found[THEORY] = theory.double()
    return {name: torch.where(value == 0, 0.0, value / squares) for name, value in found.items()}
