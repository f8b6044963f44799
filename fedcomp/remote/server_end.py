"""The server's end of the connections with its clients: who is there, who is gone, who comes back."""

import contextlib
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from fedcomp.core.validate import is_whole
from fedcomp.remote.door import Arrived, Door
from fedcomp.remote.frames import MESSAGE, REPORT, WORD, Address, Again, CarriedBytes, Gone, Peer, read_words
from fedcomp.remote.kept import Kept

MOST_NAMED = 5
"""Clients that are named while they are waited for; of more only the number is said."""


class Lost(Exception):
    """A client of the cohort is gone or late: the round is made again without it."""


class ServerEnd:
    """The server's connections, one a client.

    Attributes:
        client: None, as in `Link.client`. carried: bytes of the messages so far.
        kept: what clients need that come back.
        may_go_on: whether a run goes on without a client that is gone or late; else it stops.
    """

    client = None

    def __init__(
        self, address: Address, key: bytes, patience: float = 600.0, say: Callable[[str], None] = lambda line: None
    ) -> None:
        self._door = Door(address, key)
        self._peers: dict[int, Peer] = {}
        self._new: list[int] = []
        self._needed: frozenset[int] = frozenset()  # the cohort of this round
        self._patience, self._say = patience, say
        self._num_clients, self._run, self._number = 0, "", ""
        self.carried = self._before = CarriedBytes()
        self.kept, self.may_go_on = Kept(), False
        self._left = ""  # why the last one that is gone has left

    @property
    def address(self) -> Address:
        """Where it listens; with port 0 the one that was free."""
        return self._door.address

    def gather(self, num_clients: int, run: str, number: str = "", wait: float | None = None) -> None:
        """Wait until every client is here. Who is not of this run, or comes twice, is refused with a line.

        Args:
            run: names the run. number: tells it from others of this name. wait: seconds after which it goes on with
                those who have come; None: without limit.
        """
        self._num_clients, self._run, self._number = num_clients, run, number
        until = None if wait is None else time.monotonic() + wait
        while len(self._peers) < num_clients:
            came = self._door.next(None if until is None else max(0.0, until - time.monotonic()))
            if came is None:
                break
            if self._welcome(came):
                self._say(f"{len(self._peers)} of {num_clients} clients are here{self._missing()}")
            if len(self._peers) == num_clients:
                for client in list(self._new):
                    self._forget_if_gone(client)

    def _missing(self) -> str:
        """The clients that are waited for, if they are few."""
        missing = [str(client) for client in range(self._num_clients) if client not in self._peers]
        return f"; missing: {', '.join(missing)}" if 0 < len(missing) <= MOST_NAMED else ""

    def begin(self, index: int) -> tuple[int, ...]:
        """A round begins: who comes back makes the rounds that it missed. Returns the clients that are not here.

        Raises Gone: the run cannot go on without a client that is gone.
        """
        for client in list(self._peers):
            if client not in self._new:
                self._or_lose(client, Peer.check_there)
        while (came := self._door.next(0)) is not None:
            self._welcome(came)
        for client in self._new:
            self._or_lose(client, functools.partial(self._catch_up, client, index))
        self._new = []
        if not self._peers:
            raise Gone(f"no client is here{self._left}: start them and the server again, and they go on")
        absent = tuple(client for client in range(self._num_clients) if client not in self._peers)
        self.kept.begin(index, absent, range(self._num_clients))
        self._before = replace(self.carried)
        return absent

    def tell_round(self, index: int, absent: Sequence[int], cohort: Sequence[int]) -> None:
        """Tell all clients that a round begins. Raises Lost, Gone."""
        self._needed = frozenset(cohort)
        self._tell(round=index, absent=absent)
        if not self._needed <= self._peers.keys():
            raise Lost

    def abandon(self) -> None:
        """All clients go back to the round's beginning, and what they have sent since then is dropped. Raises Gone."""
        carried = self.carried.up + self.carried.down - self._before.up - self._before.down
        self.carried = replace(self._before, again=self._before.again + carried)
        self._tell(again=True)
        for client in list(self._peers):
            self._or_lose(client, _drain)

    def send(self, client: int, message: bytes) -> None:
        """A message of the algorithm down; for a client that is away it is kept. Raises Lost, Gone."""
        self.carried.down += len(message)
        self.carried.messages += 1
        if self.may_go_on:
            self.kept.add(client, message)
        if client in self._peers:
            self._or_lose(client, lambda peer: peer.send(MESSAGE, message))
        if client in self._needed and client not in self._peers:
            raise Lost

    def receive(self, client: int, most: int) -> bytes:
        """A message of the algorithm up, of at most `most` bytes. Raises Lost, Gone."""
        message = self._hear(client, MESSAGE, most)
        self.carried.up += len(message)
        self.carried.messages += 1
        return message

    def report(self, client: int, num: int) -> bytes:
        """What a client reports of itself, `num` bytes. Raises Lost, Gone."""
        report = self._hear(client, REPORT, num)
        if len(report) != num:
            self.lose(client, f"reports {len(report)} bytes instead of {num}: it runs other code")
        return report

    def lose(self, client: int, why: str) -> NoReturn:
        """A client sent what it must not, which `why` says; it is left out like one that is gone. Raises Lost, Gone."""
        self._go_on_without(client, Gone(f"{self._peers[client].name} {why}"))
        raise Lost

    def tell_test(self, rounds: int) -> None:
        """All clients report what a test after so many rounds needs of them (`report`). Raises Gone."""
        self._tell(test=rounds)

    def save(self) -> None:
        """All clients who are here save their states after the last round. Raises Gone."""
        self._tell(save=True)
        for client in list(self._peers):
            self._or_lose(client, _wait_for_save)
        self.kept.save([client for client in range(self._num_clients) if client not in self._peers])

    def close(self, **content: Any) -> None:
        """Tell the clients why it ends, as far as they still listen, and close all connections."""
        self._door.close(f"it stops: {content['stop']}" if "stop" in content else "the run has ended")
        for peer in self._peers.values():
            with contextlib.suppress(Gone):
                peer.tell(**content)
        for peer in self._peers.values():
            peer.close()

    def _welcome(self, came: Arrived | str) -> bool:
        """Whether who came is one of the clients; else it is refused with a line."""
        if isinstance(came, str):
            self._say(f"refused: {came}")
            return False
        peer, hello = came.peer, came.hello
        try:
            client = self._client_of(hello)
            peer.be_patient(self._patience)
            peer.tell(refused=None, number=self._number)
        except Gone as error:
            self._say(f"refused: {error}")
            with contextlib.suppress(Gone):
                peer.tell(refused=str(error))
            peer.close()
            return False
        goes_on = hello.get("number") in (None, self._number)
        peer.name, peer.has = f"client {client}", tuple(hello["has"]) if goes_on else (0,)
        self._peers[client] = peer
        self._new.append(client)
        return True

    def _client_of(self, hello: Mapping[str, Any]) -> int:
        """The number of the client that says this. Raises Gone: it cannot take part."""
        client, run, number, has = (hello.get(name) for name in ("client", "run", "number", "has"))
        if run != self._run:
            raise Gone(f"it joins the run {run}, and this is {self._run}: give both the same options, data and code")
        if not is_whole(client) or not 0 <= client < self._num_clients:
            raise Gone(f"there is no client {client}: they are 0 to {self._num_clients - 1}")
        if not isinstance(has, list) or not all(map(is_whole, has)):
            raise Gone(f"client {client} says that it has its state after rounds {has}: it runs other code")
        if number not in (None, self._number) and not hello.get("overwrite"):
            raise Gone(
                f"client {client} has its state of run {number}, and this is run {self._number} of the same options: "
                f"go on with the server of that run, or give this client overwrite=true, which removes that state"
            )
        self._forget_if_gone(client)
        if client in self._peers:
            raise Gone(f"client {client} is here already")
        return int(client)

    def _forget_if_gone(self, client: int) -> None:
        """A client may come, leave before the first round, and come again."""
        if client in self._new:
            try:
                self._peers[client].check_there()
            except Gone:
                self._peers.pop(client).close()
                self._new.remove(client)

    def _catch_up(self, client: int, index: int, peer: Peer) -> None:
        """Send a client what it needs to make the rounds before `index` that it has not made, or has lost."""
        rounds = self.kept.since(client, peer.has, index)
        saved = index if self.kept.saved is None else self.kept.saved
        for one in rounds:
            peer.tell(round=one.index, absent=one.absent, past=True)
            for message in one.messages[client]:
                peer.send(MESSAGE, message)
                self.carried.again += len(message)
            if one.index + 1 == saved:  # as all others did
                peer.tell(save=True, past=True)
        if rounds:
            self._say(f"client {client} is back, and makes rounds {rounds[0].index + 1} to {index}")

    def _tell(self, **content: Any) -> None:
        for client in list(self._peers):
            self._or_lose(client, lambda peer: peer.tell(**content))

    def _hear(self, client: int, kind: bytes, most: int) -> bytes:
        if client not in self._peers:
            raise Gone(f"client {client} is gone, and the method needs its message: start both again, and they go on")
        data = self._or_lose(client, lambda peer: peer.receive(kind, most))
        if data is None:
            raise Lost
        return data

    def _or_lose(self, client: int, call: Callable[[Peer], Any]) -> Any:
        """What the call gives. If the client is gone: None, and the run goes on without it, or Gone is raised."""
        try:
            return call(self._peers[client])
        except (Gone, Again) as error:
            self._go_on_without(client, error)
            return None

    def _go_on_without(self, client: int, error: Gone | Again) -> None:
        """Leave out a client that is gone, or raise the error if the run needs all."""
        if not self.may_go_on:
            raise error
        peer = self._peers.pop(client)
        self._left = f" ({error})"
        with contextlib.suppress(Gone):
            peer.tell(left_out=str(error))
        peer.close()
        self._say(f"{error}; the run goes on without it, and it may come back")


def _drain(peer: Peer) -> None:
    """Read on until the client is back at the beginning of the round."""
    while True:
        kind, data = peer.next()
        if kind == WORD:
            said = read_words(data)
            if said.get("done") == "again":
                return
            raise peer.stops(said)


def _wait_for_save(peer: Peer) -> None:
    said = peer.hear()
    if said.get("done") != "saved":
        raise peer.stops(said)
