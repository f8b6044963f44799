"""Links carry payloads and write the ledger. `Link` counts; `WireLink` is its honest twin and really sends bytes."""

from __future__ import annotations

from torch import Tensor

from fedcomp.wire.ledger import Ledger
from fedcomp.wire.packing import layout, pack, unpack
from fedcomp.wire.payload import Payload


class Link:
    """Carries messages between clients and server as they are, and counts them (`wire=counted`)."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def up(self, payload: Payload) -> Payload:
        """One message from each client (row) to the server; returns what the server receives."""
        bits, paper = payload.total_bits, _paper_bits(payload)
        self.ledger.add("uplink", bits, paper)
        return self._carry(payload)

    def unicast(self, payload: Payload) -> Payload:
        """One message from the server to each client (row); returns what they receive."""
        bits, paper = payload.total_bits, _paper_bits(payload)
        self.ledger.add("downlink", bits, paper)
        self.ledger.add("broadcast", bits, paper)
        return self._carry(payload)

    def broadcast(self, payload: Payload, num_receivers: int) -> Payload:
        """The same messages (rows) from the server to `num_receivers` clients; returns what each receives."""
        bits, paper = payload.total_bits, _paper_bits(payload)
        self.ledger.add("downlink", bits * num_receivers, paper * num_receivers)
        self.ledger.add("broadcast", bits, paper)
        return self._carry(payload)

    def _carry(self, payload: Payload) -> Payload:
        return payload


class WireLink(Link):
    """Sends every row through bytes, and hands the receiver only what it unpacks (`wire=packed`).

    Raises:
        AssertionError: a message whose bytes are not its declared bits, rounded up to a byte.
    """

    def _carry(self, payload: Payload) -> Payload:
        device = next(iter(payload.fields.values())).data.device
        messages = [pack(payload, row) for row in range(payload.num_rows)]
        for message, bits in zip(messages, payload.bits.tolist(), strict=True):
            assert 0 <= 8 * len(message) - bits < 8, f"a message of {8 * len(message)} bits declares {bits}"
        return unpack(messages, layout(payload), device)


def _paper_bits(payload: Payload) -> int | Tensor:
    return payload.total_bits if payload.paper_bits is None else payload.paper_bits * payload.num_rows
