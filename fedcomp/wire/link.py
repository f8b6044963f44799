"""Links carry payloads and write the ledger. `Link` only counts bits; `WireLink` encodes payloads as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from fedcomp.core.cohort import Cohort, Everyone, Listed, Receivers
from fedcomp.wire.coding.contract import WireError
from fedcomp.wire.coding.packed_bytes import WORD
from fedcomp.wire.ledger import Ledger
from fedcomp.wire.legs import BROADCAST, RELAY, UNICAST, UP, XOR_RELAY
from fedcomp.wire.packing import layout, pack, unpack
from fedcomp.wire.payload import Payload


class Link:
    """Carries messages between clients and server as tensors, and counts their bits (`wire=counted`).

    Attributes:
        checks: whether a WireError is raised for an entry that its coding cannot write, which reads from the device.
        client: the number of the client whose end this is, apart from all others; None: all ends, as in a simulation.
        memory: what such a client keeps from round to round by name. A simulation keeps the server's own for all where
            every client that was sent the same ends at the same.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.checks = ledger, True
        self.client: int | None = None
        self.memory: dict[str, Tensor] = {}
        self._measured: dict[str, list[Tensor]] = {}

    @property
    def measured(self) -> dict[str, Tensor]:
        """0-d means over all messages so far of what `Payload.measured` says; `_down` at the end: the server's."""
        return {name: torch.cat(values).mean() for name, values in self._measured.items()}

    def up(self, payload: Payload, senders: Cohort | Listed | None = None) -> Payload:
        """One message from each client (row) to the server; returns what the server receives.

        Args:
            senders: whose the rows are; None: the cohort's.
        """
        bits, paper = payload.total_bits, payload.total_paper_bits
        self.ledger.add("uplink", bits, paper)
        if self.ledger.legs is not None:
            self.ledger.legs.add(UP, payload.row_bits(bits), senders)
        return self._carry(self._without_measured(payload))

    def unicast(self, payload: Payload) -> Payload:
        """One message from the server to each client (row); returns what they receive."""
        bits, paper = payload.total_bits, payload.total_paper_bits
        self.ledger.add("downlink", bits, paper)
        self.ledger.add("broadcast", bits, paper)
        if self.ledger.legs is not None:
            self.ledger.legs.add(UNICAST, payload.row_bits(bits))
        return self._carry(self._without_measured(payload, "_down"))

    def broadcast(self, payload: Payload, receivers: Receivers) -> Payload:
        """The same messages (rows) from the server to all `receivers`; returns what each receives.

        Args:
            receivers: the cohort, `ctx.everyone`, or `Listed` clients.
        """
        check_receivers(receivers)
        bits, paper = payload.total_bits, payload.total_paper_bits
        self.ledger.add_receivers(receivers.size)
        self.ledger.add("downlink", bits * receivers.size, paper * receivers.size)
        self.ledger.add("broadcast", bits, paper)
        if self.ledger.legs is not None:
            self.ledger.legs.add(BROADCAST, bits, receivers)
        return self._carry(self._without_measured(payload, "_down"))

    def relay(self, payload: Payload, coded: bool = False) -> Payload:
        """The server forwards every client's message (row) to all other clients; returns what each of them then has.

        By unicast, each client gets the M - 1 messages of the others. A broadcast has all M messages. With `coded` it
        has M - 1 messages, the XORs of neighbouring ones: each client decodes them with its own message. Papers count
        M - 1 messages.

        Raises:
            ValueError: `coded` and the messages differ in length.
        """
        num, bits, paper = payload.num_rows, payload.total_bits, payload.total_paper_bits
        self.ledger.add("downlink", bits * (num - 1), paper * (num - 1))
        if coded and not isinstance(bits, int):
            raise ValueError(
                "relaying by XOR needs messages of one length: relay each as it is (algorithm.relay=plain)"
            )
        paper_of_others = paper * (num - 1) // num
        self.ledger.add("broadcast", bits * (num - 1) // num if coded or num == 1 else bits, paper_of_others)
        if self.ledger.legs is not None:
            self.ledger.legs.add(XOR_RELAY if coded else RELAY, payload.row_bits(bits))
        return self._forward(payload, coded)

    def _without_measured(self, payload: Payload, suffix: str = "") -> Payload:
        """Keep what was measured of a message; returns the rest of it, which the receiver gets."""
        for name, values in payload.measured.items():
            self._measured.setdefault(name + suffix, []).append(values)
        return replace(payload, measured={}) if payload.measured else payload

    def _carry(self, payload: Payload) -> Payload:
        if self.checks:
            payload.check_range()
        return payload

    def _forward(self, payload: Payload, coded: bool) -> Payload:
        return self._carry(payload)


class WireLink(Link):
    """Packs every row into bytes, and returns only what is unpacked from them (`wire=packed`).

    Raises:
        WireError: in every round, an entry that its coding cannot write or that arrives as another, or a message whose
            length is not its number of bits, rounded up to bytes.
    """

    def _carry(self, payload: Payload) -> Payload:
        return self._unpacked(self._packed(payload), payload)

    def _forward(self, payload: Payload, coded: bool) -> Payload:
        if not coded:
            return self._carry(payload)
        messages = self._packed(payload)
        sent = [_xor(one, other) for one, other in pairwise(messages)]
        for receiver in range(len(messages)):
            known = {receiver: messages[receiver]}
            for row in range(receiver, 0, -1):
                known[row - 1] = _xor(known[row], sent[row - 1])
            for row in range(receiver, len(sent)):
                known[row + 1] = _xor(known[row], sent[row])
            received = [known[row] for row in range(len(messages))]
            assert received == messages, "a client cannot decode the relayed messages"
        return self._unpacked(received, payload)

    def _unpacked(self, messages: Sequence[bytes], payload: Payload) -> Payload:
        """What is read from the bytes; its entries are those of the payload, bit for bit."""
        device = next(iter(payload.fields.values())).data.device
        received = replace(unpack(list(messages), layout(payload), device), paper_bits=payload.paper_bits)
        for name, field in payload.fields.items():
            data = received.fields[name].data
            if not torch.equal(_as_bits(data), _as_bits(field.data[:, : data.shape[1]])):
                raise WireError(
                    f"field {name} arrives with other entries than were sent: its coding reads what was not sent, or "
                    "entries behind a row's `count` are not zero"
                )
        return received

    def _packed(self, payload: Payload) -> list[bytes]:
        """The bytes of each row."""
        payload.check_range()
        messages = [pack(payload, row) for row in range(payload.num_rows)]
        for message, bits in zip(messages, payload.bits.tolist(), strict=True):
            if not 0 <= 8 * len(message) - bits < 8:
                raise WireError(f"a message of {8 * len(message)} bits declares {bits}: its coding counts wrongly")
        return messages


def check_receivers(receivers: object) -> None:
    """Raise ValueError unless `receivers` are clients; a mere number of them does not say whose bits they are."""
    if not isinstance(receivers, (Cohort, Everyone, Listed)):
        raise ValueError(
            f"a broadcast goes to receivers={receivers!r}, but must say to whom: the cohort, ctx.everyone for all "
            "clients, or Listed(clients) for some"
        )


def _as_bits(data: Tensor) -> Tensor:
    """The same memory as integers, so that NaN equals NaN."""
    return data.contiguous().view(WORD[data.element_size()]) if data.is_floating_point() else data


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(left ^ right for left, right in zip(one, other, strict=True))
