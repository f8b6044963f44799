"""Headers: the bytes around a message that the ledger does not count.

For TCP over IPv4 without options in TLS 1.3: message 22, packet 40, payload 1460 (an assumption from the protocols'
headers). They matter for a message of one number, and hardly for anything larger.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from fedcomp.core.ranges import CheckedOptions, Whole


@dataclass(frozen=True)
class Header(CheckedOptions):
    """Bytes that are sent beside a client's bits of a phase.

    Attributes:
        message: of each message. packet: of each packet. payload: bytes of message and its header in a packet.
    """

    prefix: ClassVar[str] = "network.header."
    message: Annotated[int, Whole(0, "a number of bytes")]
    packet: Annotated[int, Whole(0, "a number of bytes")]
    payload: Annotated[int, Whole(meaning="a number of bytes")]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Header":
        """From an option. Raises ValueError: other keys, or not whole numbers of 0 (payload: 1) or more."""
        if not isinstance(given, Mapping) or set(given) != {"message", "packet", "payload"}:
            raise ValueError(f"network.header={given} must have message, packet, payload, in bytes; null: no headers")
        return cls(**given)

    def line_bits(self, bits: Any) -> Any:
        """8 (n + packet ceil(n / payload)) bits of line, n = ceil(b / 8) + message; 0 for b = 0.

        Args:
            bits: b, an int or an array of int64.
        """
        num_bytes = -(-bits // 8) + self.message
        return (8 * (num_bytes + self.packet * -(-num_bytes // self.payload))) * (bits > 0)
