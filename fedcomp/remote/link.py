"""A link between processes: what one end sends are bytes on a connection, and what it has of others are placeholders.

Every process makes every round with the same keyed draws. So all know the order of messages, their senders and their
layouts; what differs is what a process knows of their values. The rows of a client are right in its own process and,
once they came up, in the server's. Shape legend: M clients of the cohort (rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from torch import Tensor

from fedcomp.core.cohort import Cohort, Everyone, Listed, Receivers
from fedcomp.remote.client_end import ClientEnd
from fedcomp.remote.server_end import ServerEnd
from fedcomp.wire import Ledger, Payload, WireError, WireLink
from fedcomp.wire.packing import layout, pack, unpack


class RemoteLink(WireLink):
    """What both ends share.

    Args:
        cohort: of the round; None before the first. num_clients: N.
    """

    def __init__(self, cohort: Cohort | None, num_clients: int, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._cohort, self._num_clients = cohort, num_clients

    def _clients(self, who: Receivers | None) -> tuple[int, ...]:
        """Numbers of clients; None: the cohort's."""
        if isinstance(who, Everyone):
            return tuple(range(self._num_clients))
        who = self._cohort if who is None else who
        assert who is not None
        return who.clients

    @staticmethod
    def _read(messages: Sequence[bytes], known: Payload) -> Payload:
        """What is unpacked with the layout that `known` has."""
        device = next(iter(known.fields.values())).data.device
        return replace(unpack(list(messages), layout(known), device), paper_bits=known.paper_bits)


class ServersLink(RemoteLink):
    """The server's end: it receives rows, counts bits, and sends what went through its codings."""

    def __init__(self, end: ServerEnd, cohort: Cohort | None, num_clients: int, ledger: Ledger) -> None:
        super().__init__(cohort, num_clients, ledger)
        self._end = end
        self._to: Sequence[tuple[int, int]] = ()  # (client, row) of what `_carry` sends

    def up(self, payload: Payload, senders: Cohort | Listed | None = None) -> Payload:
        known = replace(payload, measured={})
        most, clients = most_bytes(known), self._clients(senders)
        messages = [self._end.receive(client, most) for client in clients]
        try:
            received = self._read(messages, known)
        except WireError as error:
            raise WireError(f"a message up cannot be read ({error}; the rows are clients {clients})") from error
        self._to = ()
        return super().up(received, senders)

    def unicast(self, payload: Payload) -> Payload:
        self._to = [(client, row) for row, client in enumerate(self._clients(None))]
        return super().unicast(payload)

    def broadcast(self, payload: Payload, receivers: Receivers) -> Payload:
        rows = range(payload.num_rows)
        self._to = [(client, row) for client in self._clients(receivers) for row in rows]
        return super().broadcast(payload, receivers)

    def _carry(self, payload: Payload) -> Payload:
        messages = self._packed(payload)
        for client, row in self._to:
            self._end.send(client, messages[row])
        return self._unpacked(messages, payload)

    def _forward(self, payload: Payload, coded: bool) -> Payload:
        """Every client gets the M - 1 messages of the others, or the M - 1 XORs of neighbours."""
        messages = self._packed(payload)
        neighbours = [bytes(a ^ b for a, b in zip(one, other)) for one, other in pairwise(messages)] if coded else []
        for row, client in enumerate(self._clients(None)):
            for message in neighbours if coded else [*messages[:row], *messages[row + 1 :]]:
                self._end.send(client, message)
        return self._unpacked(messages, payload)


class ClientsLink(RemoteLink):
    """A client's end: it sends its own row, and has of others what was broadcast or relayed."""

    def __init__(
        self, end: ClientEnd, memory: dict[str, Tensor], cohort: Cohort | None, num_clients: int, ledger: Ledger
    ) -> None:
        super().__init__(cohort, num_clients, ledger)
        self._end, self.client, self.memory = end, end.client, memory

    def up(self, payload: Payload, senders: Cohort | Listed | None = None) -> Payload:
        clients, payload = self._clients(senders), replace(payload, measured={})
        if self.client in clients:
            self._end.send(self._own(payload, clients.index(self.client)))
        return payload

    def unicast(self, payload: Payload) -> Payload:
        clients, payload = self._clients(None), replace(payload, measured={})
        if self.client not in clients:
            return payload
        own, most = clients.index(self.client), most_bytes(payload)
        rows = range(payload.num_rows)
        return self._read([self._end.receive(most) if row == own else pack(payload, row) for row in rows], payload)

    def broadcast(self, payload: Payload, receivers: Receivers) -> Payload:
        payload = replace(payload, measured={})
        if self.client not in self._clients(receivers):
            return payload
        most = most_bytes(payload)
        return self._read([self._end.receive(most) for _ in range(payload.num_rows)], payload)

    def relay(self, payload: Payload, coded: bool = False) -> Payload:
        clients = self._clients(None)
        if self.client not in clients:
            return payload
        own, num, most = clients.index(self.client), payload.num_rows, most_bytes(payload)
        messages = {own: pack(payload, own)}
        if not coded:
            messages |= {row: self._end.receive(most) for row in range(num) if row != own}
        else:
            neighbours = [self._end.receive(most) for _ in range(num - 1)]
            for row in range(own, 0, -1):
                messages[row - 1] = bytes(a ^ b for a, b in zip(messages[row], neighbours[row - 1]))
            for row in range(own, num - 1):
                messages[row + 1] = bytes(a ^ b for a, b in zip(messages[row], neighbours[row]))
        return self._read([messages[row] for row in range(num)], payload)

    @staticmethod
    def _own(payload: Payload, row: int) -> bytes:
        """The bytes of one row, whose entries fit."""
        for name, field in payload.fields.items():
            try:
                field.coding.check(field.sent(row))
            except WireError as error:
                raise WireError(f"field {name}: {error}") from None
        return pack(payload, row)


def most_bytes(payload: Payload) -> int:
    """More bytes than any message of this layout has."""
    return (
        1024
        + sum(16 * max(field.data.shape[1], 64) for field in payload.fields.values())
        + (1 << 16) * any(field.count_from is not None for field in payload.fields.values())
    )
