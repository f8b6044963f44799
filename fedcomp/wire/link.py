"""Links carry payloads and write the ledger. `Link` only counts bits; `WireLink` encodes payloads as bytes."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from fedcomp.core.cohort import Cohort, Everyone, Listed, Receivers
from fedcomp.wire.coding import Coding, Shortest
from fedcomp.wire.coding.contract import WireError
from fedcomp.wire.coding.packed_bytes import WORD
from fedcomp.wire.ledger import Ledger
from fedcomp.wire.legs import BROADCAST, RELAY, UNICAST, UP, XOR_RELAY
from fedcomp.wire.packing import UnreadableMessage, pack, unpack_as
from fedcomp.wire.payload import Payload


class Link:
    """Carries messages between clients and server as tensors, and counts their bits (`wire=counted`).

    Attributes:
        checks: whether a WireError is raised for an entry that its coding cannot write, which reads from the device. A
            message with a coding of the user's own is then packed, as by `WireLink`, to see that it counts its bits.
        both_ends: whether what a sender meant is known here beside what arrives: not at one end alone.
        client: the number of the client whose end this is, apart from all others; None: all ends, as in a simulation.
        memory: what such a client keeps from round to round by name. A simulation keeps the server's own for all where
            every client that was sent the same ends at the same.
    """

    both_ends: ClassVar[bool] = True

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
        return self._send(UP, payload, senders)

    def unicast(self, payload: Payload) -> Payload:
        """One message from the server to each client (row); returns what they receive."""
        return self._send(UNICAST, payload)

    def broadcast(self, payload: Payload, receivers: Receivers) -> Payload:
        """The same messages (rows) from the server to all `receivers`; returns what each receives.

        Args:
            receivers: the cohort, `ctx.everyone`, or `Listed` clients.
        """
        if not isinstance(receivers, (Cohort, Everyone, Listed)):  # a mere number does not say whose bits they are
            raise ValueError(
                f"a broadcast goes to receivers={receivers!r}, but must say to whom: the cohort, ctx.everyone for all "
                "clients, or Listed(clients) for some"
            )
        return self._send(BROADCAST, payload, receivers)

    def relay(self, payload: Payload, coded: bool = False) -> Payload:
        """The server forwards every client's message (row) to all other clients; returns what each of them then has.

        By unicast, each client gets the M - 1 messages of the others. A broadcast has all M messages. With `coded` it
        has M - 1 messages, the XORs of neighbouring ones: each client decodes them with its own message. Papers count
        M - 1 messages.

        Raises:
            ValueError: `coded` and the messages differ in length.
        """
        return self._send(XOR_RELAY if coded else RELAY, payload)

    def _send(self, kind: int, payload: Payload, who: Receivers | None = None) -> Payload:
        """Count a message of one of the kinds in `legs.py`, keep what was measured of it, and carry the rest.

        Args:
            who: whose the rows are, or who receives; None: the cohort.
        """
        num = payload.num_rows
        if kind in (UP, UNICAST) and who is None and num != (self.ledger.num_in_cohort or num):
            raise ValueError(
                f"a message of {num} rows, {', '.join(payload.fields)}, goes between the server and the "
                f"{self.ledger.num_in_cohort} clients of a round: it needs a row for each (for the same to all "
                "there is link.broadcast; others are named by link.up(payload, Listed(clients)))"
            )
        self._count(kind, payload, who)
        for name, values in payload.measured.items():
            self._measured.setdefault(name if kind == UP else f"{name}_down", []).append(values)
        try:
            return self._carry(kind, replace(payload, measured={}) if payload.measured else payload, who)
        except WireError as error:
            if who is not None:
                error.row = None  # its row is none of the cohort
            raise

    def _count(self, kind: int, payload: Payload, who: Receivers | None) -> None:
        """Add the message to the ledger."""
        num, bits, paper = payload.num_rows, payload.total_bits, payload.total_paper_bits
        if kind == UP:
            self.ledger.add("uplink", bits, paper)
        elif kind == UNICAST:
            self.ledger.add("downlink", bits, paper)
            self.ledger.add("broadcast", bits, paper)
        elif kind == BROADCAST:
            assert who is not None
            self.ledger.add_receivers(who.size)
            self.ledger.add("downlink", bits * who.size, paper * who.size)
            self.ledger.add("broadcast", bits, paper)
        else:
            self.ledger.add("downlink", bits * (num - 1), paper * (num - 1))
            coded = kind == XOR_RELAY
            if coded and not isinstance(bits, int):
                raise ValueError(
                    "relaying by XOR needs messages of one length: relay each as it is (algorithm.relay=plain)"
                )
            once = bits * (num - 1) // num if coded or num == 1 else bits
            self.ledger.add("broadcast", once, paper * (num - 1) // num)
        if self.ledger.legs is not None:
            self.ledger.legs.add(kind, bits if kind == BROADCAST else payload.row_bits(bits), who)
        if kind == UP:
            self.ledger.hear()

    def _carry(self, kind: int, payload: Payload, who: Receivers | None) -> Payload:
        """What arrives; arguments as in `_send`."""
        if self.checks and any(_unproved(field.coding) for field in payload.fields.values()):
            self._unpacked(self._packed(payload), payload)
        elif self.checks:
            payload.check_range()
        return payload

    def _unpacked(self, messages: Sequence[bytes], payload: Payload) -> Payload:
        """What is read from the bytes; its entries are those of the payload, bit for bit."""
        try:
            received = unpack_as(payload, messages)
        except UnreadableMessage as error:
            raise WireError(f"{error}: its coding does not read what it writes") from None
        for name, field in payload.fields.items():
            data = received.fields[name].data
            if not torch.equal(_as_bits(data), _as_bits(field.data[:, : data.shape[1]])):
                raise WireError(
                    f"field {name} arrives with other entries than were sent: its coding reads what was not sent"
                )
        return received

    def _packed(self, payload: Payload) -> list[bytes]:
        """The bytes of each row."""
        payload.check_range()
        return [pack(payload, row) for row in range(payload.num_rows)]


class WireLink(Link):
    """Packs every row into bytes, and returns only what is unpacked from them (`wire=packed`).

    Raises:
        WireError: in every round, an entry that its coding cannot write or that arrives as another, or a message that
            has another number of bits than was counted.
    """

    def _carry(self, kind: int, payload: Payload, who: Receivers | None) -> Payload:
        messages = self._packed(payload)
        if kind == XOR_RELAY:
            sent = neighbours(messages)
            for row, own in enumerate(messages):
                assert of_neighbours(sent, row, own) == messages, "a client cannot decode the relayed messages"
        return self._unpacked(messages, payload)


def _unproved(coding: Coding) -> bool:
    """Whether it is a user's own, or chooses from one: tests prove that fedcomp's count the bits that they write."""
    parts = coding.codings if isinstance(coding, Shortest) else ()
    return not type(coding).__module__.startswith("fedcomp.") or any(map(_unproved, parts))


def _as_bits(data: Tensor) -> Tensor:
    """The same memory as integers, so that NaN equals NaN."""
    return data.contiguous().view(WORD[data.element_size()]) if data.is_floating_point() else data


def neighbours(messages: Sequence[bytes]) -> list[bytes]:
    """The M - 1 XORs of neighbouring messages."""
    return [_xor(one, other) for one, other in pairwise(messages)]


def of_neighbours(sent: Sequence[bytes], row: int, own: bytes) -> list[bytes]:
    """All M messages from the XORs of neighbours, by who has the one of a row."""
    known = {row: own}
    for at in range(row, 0, -1):
        known[at - 1] = _xor(known[at], sent[at - 1])
    for at in range(row, len(sent)):
        known[at + 1] = _xor(known[at], sent[at])
    return [known[at] for at in range(len(known))]


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(left ^ right for left, right in zip(one, other, strict=True))
