"""Messages as they really are: payloads, the links that carry them and the ledger that counts them."""

from fedcomp.wire.common import Common
from fedcomp.wire.errors import WireError
from fedcomp.wire.ledger import Ledger
from fedcomp.wire.link import Link, WireLink
from fedcomp.wire.payload import Field, Payload

__all__ = ["Common", "Field", "Ledger", "Link", "Payload", "WireError", "WireLink"]
