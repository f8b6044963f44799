"""Messages: payloads, the links that carry them, and the ledger that counts their bits."""

from fedcomp.wire.coding.contract import WireError
from fedcomp.wire.ledger import Ledger
from fedcomp.wire.link import Link, WireLink
from fedcomp.wire.payload import Field, Payload
from fedcomp.wire.shared_knowledge import SharedKnowledge

__all__ = ["Field", "Ledger", "Link", "Payload", "SharedKnowledge", "WireError", "WireLink"]
