"""A client's end of its connection with the server."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from typing import Any

from fedcomp.remote.frames import MESSAGE, REPORT, Address, CarriedBytes, Gone, Peer


class ClientEnd:
    """A client's connection with the server.

    Args:
        patience: seconds after which a server's machine that no longer answers counts as gone. wait: seconds within
            which the server begins to listen. has: the rounds after which this client has its state.

    Attributes:
        client: its number. carried: as in `ServerEnd`.
        past: whether the rounds are over that it makes: it receives what it was sent then, and sends nothing.
    """

    def __init__(
        self,
        client: int,
        address: Address,
        key: bytes,
        run: str,
        patience: float = 600.0,
        wait: float = 60.0,
        has: Sequence[int] = (0,),
    ) -> None:
        self.client, self.carried, self.past = client, CarriedBytes(), False
        self._server = Peer(_connected(address, key, wait), f"the server {address}")
        self._server.keep_alive(patience)
        self._server.tell(client=client, run=run, has=list(has))
        refused = self._server.hear().get("refused")
        if refused is not None:
            raise Gone(f"the server refuses: {refused}")

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
            return Client((address.host, address.port), authkey=key)
        except AuthenticationError as error:
            raise Gone(f"the server {address} has another key: copy its key file to this machine") from error
        except (OSError, EOFError) as error:
            if time.monotonic() > until:
                reason = getattr(error, "strerror", None) or "it does not answer"
                raise Gone(f"there is no server at {address}: {reason}") from error
            time.sleep(0.1)
