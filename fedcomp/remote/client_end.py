"""A client's end of its connection with the server."""

import contextlib
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

from fedcomp.remote.frames import (
    HANDSHAKE_SECONDS,
    MESSAGE,
    REPORT,
    START_SECONDS,
    Address,
    CarriedBytes,
    Gone,
    Peer,
    in_time,
)


@dataclass(frozen=True)
class Hello:
    """What a client says when it joins.

    Attributes:
        client: its number. run: names the run. has: the rounds after which it has its state.
        number: of the run whose state that is; None: it has none. overwrite: whether it gives up that of another run.
    """

    client: int
    run: str
    has: Sequence[int] = (0,)
    number: str | None = None
    overwrite: bool = False


class ClientEnd:
    """A client's connection with the server.

    Args:
        patience: seconds after which a server's machine that no longer answers counts as gone. wait: seconds within
            which the server begins to listen.

    Attributes:
        client: its number. carried: as in `ServerEnd`. number: of the run, as the server says.
        past: whether the rounds are over that it makes: it receives what it was sent then, and sends nothing.
    """

    def __init__(
        self, address: Address, key: bytes, hello: Hello, patience: float = 600.0, wait: float = START_SECONDS
    ) -> None:
        self.client, self.carried, self.past = hello.client, CarriedBytes(), False
        self._server = Peer(_connected(address, key, wait), f"the server {address}")
        self._server.keep_alive(patience)
        self._server.tell(**asdict(hello))
        answer = self._server.hear()
        if answer.get("refused") is not None:
            self.close()
            raise Gone(f"the server refuses: {answer['refused']}")
        self.number = str(answer.get("number"))

    def send(self, message: bytes) -> None:
        """A message of the algorithm up. Raises Gone."""
        if self.past:
            return
        self._server.send(MESSAGE, message)
        self.carried.up += len(message)
        self.carried.messages += 1

    def receive(self, most: int) -> bytes:
        """A message of the algorithm down, of at most `most` bytes. Raises Gone; Again: the round is made again."""
        message = self._server.receive(MESSAGE, most)
        self.carried.down += len(message)
        self.carried.messages += 1
        return message

    def report(self, data: bytes) -> None:
        """What the server is told beside messages. Raises Gone."""
        if not self.past:
            self._server.send(REPORT, data)

    def listen(self) -> Mapping[str, Any]:
        """The server's next word. Raises Gone."""
        word = self._server.hear()
        if "stop" in word or "left_out" in word:
            raise self._server.stops(word)
        self.past = word.get("past", False)
        return word

    def say(self, **content: Any) -> None:
        """A word to the server. Raises Gone."""
        if not self.past:
            self._server.tell(**content)

    def close(self, why: str | None = None) -> None:
        """Say why it ends, if the server still listens, and close the connection."""
        if why is not None:
            with contextlib.suppress(Gone):
                self._server.tell(stop=why)
        self._server.close()


def _connected(address: Address, key: bytes, wait: float) -> Connection:
    """A connection with the server, which may begin to listen only within `wait` seconds."""
    until = time.monotonic() + wait
    while True:
        try:
            return _greeted(address, key)
        except (OSError, EOFError, AssertionError, AuthenticationError) as error:
            if isinstance(error, AuthenticationError) and "digest" in str(error):
                raise Gone(f"the server {address} has another key: copy its key file to this machine") from error
            # a foreign greeting is an AssertionError up to Python 3.11, later an AuthenticationError without a digest
            if time.monotonic() > until:
                reason = getattr(error, "strerror", None) or "it does not answer as fedcomp-serve does"
                raise Gone(f"there is no server at {address}: {reason}") from error
            time.sleep(0.1)


def _greeted(address: Address, key: bytes) -> Connection:
    """A connection whose other end has proved that it holds the key, as this one has."""
    connected = socket.create_connection((address.host, address.port), HANDSHAKE_SECONDS)
    connected.settimeout(None)
    connection = Connection(connected.detach())
    try:
        with in_time(connection):
            answer_challenge(connection, key)
            deliver_challenge(connection, key)
    except BaseException:
        connection.close()
        raise
    return connection
