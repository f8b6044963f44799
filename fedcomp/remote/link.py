"""A link between processes: what one end sends are bytes on a connection, and what it has of others are placeholders.

Every process makes every round with the same keyed draws. So all know the order of messages, their senders and their
layouts; what differs is what a process knows of their values. The rows of a client are right in its own process and,
once they came up, in the server's.
"""

from dataclasses import replace

from torch import Tensor

from fedcomp.core.cohort import Cohort, Listed, Receivers
from fedcomp.remote.client_end import ClientEnd
from fedcomp.remote.server_end import ServerEnd
from fedcomp.wire import Ledger, Payload, WireLink
from fedcomp.wire.legs import BROADCAST, RELAY, UNICAST, UP, XOR_RELAY
from fedcomp.wire.link import neighbours, of_neighbours
from fedcomp.wire.packing import UnreadableMessage, pack, unpack_as


class ServersLink(WireLink):
    """The server's end: it receives rows, counts bits, and sends what went through its codings.

    Args:
        cohort: of the round; None before the first.
    """

    both_ends = False

    def __init__(self, end: ServerEnd, cohort: Cohort | None, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._end, self._cohort = end, cohort

    def up(self, payload: Payload, senders: Cohort | Listed | None = None) -> Payload:
        known = replace(payload, measured={})
        most, clients = most_bytes(known), _clients(senders, self._cohort)
        messages = [self._end.receive(client, most) for client in clients]
        try:
            received = unpack_as(known, messages)
        except UnreadableMessage as error:
            self._end.lose(clients[error.row], f"sends a message that cannot be read ({error}): it runs other code")
        return super().up(received, senders)

    def _carry(self, kind: int, payload: Payload, who: Receivers | None) -> Payload:
        messages = self._packed(payload)
        sent = neighbours(messages) if kind == XOR_RELAY else messages
        for row, client in enumerate(_clients(who, self._cohort) if kind != UP else ()):
            if kind == UNICAST:
                own = messages[row : row + 1]
            else:  # of a plain relay, the messages of the others
                own = [*sent[:row], *sent[row + 1 :]] if kind == RELAY else sent
            for message in own:
                self._end.send(client, message)
        return self._unpacked(messages, payload)


class ClientsLink(WireLink):
    """A client's end: it sends its own row, and has of others what was broadcast or relayed. It counts nothing.

    Args:
        memory: as in `Link`. cohort: as in `ServersLink`.
    """

    both_ends = False

    def __init__(self, end: ClientEnd, memory: dict[str, Tensor], cohort: Cohort | None, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._end, self.client, self.memory, self._cohort = end, end.client, memory, cohort

    def _count(self, kind: int, payload: Payload, who: Receivers | None) -> None:
        """The server counts."""

    def _carry(self, kind: int, payload: Payload, who: Receivers | None) -> Payload:
        clients, num, most = _clients(who, self._cohort), payload.num_rows, most_bytes(payload)
        if self.client not in clients:
            return payload
        own = clients.index(self.client)
        if kind == UP:
            self._end.send(self._own(payload, own))
            return payload
        if kind == BROADCAST:
            messages = [self._end.receive(most) for _ in range(num)]
        elif kind == XOR_RELAY:
            messages = of_neighbours([self._end.receive(most) for _ in range(num - 1)], own, pack(payload, own))
        else:  # the own row alone, or all others
            messages = [
                self._end.receive(most) if (row == own) == (kind == UNICAST) else pack(payload, row)
                for row in range(num)
            ]
        return unpack_as(payload, messages)

    def _own(self, payload: Payload, row: int) -> bytes:
        """The bytes of one row, which say what was meant."""
        own = payload.row(row)
        (message,) = self._packed(own)
        self._unpacked([message], own)
        return message


def _clients(who: Receivers | None, cohort: Cohort | None) -> tuple[int, ...]:
    """Numbers of clients; None: the cohort's."""
    who = cohort if who is None else who
    assert who is not None
    return who.clients


def most_bytes(payload: Payload) -> int:
    """More bytes than any message of this layout has."""
    return (
        1024
        + sum(16 * max(field.data.shape[1], 64) for field in payload.fields.values())
        + (1 << 16) * any(field.count_from is not None for field in payload.fields.values())
    )
