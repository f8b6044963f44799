"""Connections of a server process with client processes, over TCP: bytes alone, framed and authenticated.

They are those of `multiprocessing.connection`, of which only bytes are used: nothing is ever unpickled. Both ends prove
by an HMAC challenge that they hold the same key; the bytes themselves are not encrypted. A frame begins with one byte
that says what it is: a message of the algorithm, the server's word, or a client's report. Only messages count as
payload; everything else is framing.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

MESSAGE, WORD, REPORT = b"m", b"w", b"r"
BACKLOG = 128
HANDSHAKE_SECONDS = 10.0
TOO_LONG = "a message is longer than any that it may send"
MOST_WORDS = 1 << 20
"""Bytes of the longest frame that is no message."""


class Gone(ValueError):
    """The other end is gone, late, or says what it must not; one line names it and what to do."""


@dataclass
class CarriedBytes:
    """Bytes of messages, by direction, and how many messages there were."""

    up: int = 0
    down: int = 0
    messages: int = 0


@dataclass(frozen=True)
class Address:
    """HOST:PORT."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> Address:
        """Raises ValueError: it is not HOST:PORT."""
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"{text!r} is no address: give HOST:PORT, such as 127.0.0.1:7000")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def read_key(path: Path, make: bool) -> bytes:
    """The shared key in a file; a server makes one that is missing, readable by its owner alone."""
    if make and not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_hex(32) + "\n")
    if not path.is_file():
        raise ValueError(f"there is no key {path}: fedcomp-serve makes one; copy it to this machine")
    key = path.read_bytes().strip()
    if not key:
        raise ValueError(f"the key {path} is empty: remove it, and fedcomp-serve makes one")
    return key


class _Peer:
    """One connection, with the name of its other end."""

    def __init__(self, connection: Connection, name: str, patience: float) -> None:
        self._connection, self.name, self._patience = connection, name, patience

    def send(self, kind: bytes, data: bytes) -> None:
        try:
            self._connection.send_bytes(kind + data)
        except OSError as error:
            raise Gone(f"{self.name} is gone: {error.strerror or error}") from error

    def receive(self, kind: bytes, most: int) -> bytes:
        try:
            if not self._connection.poll(self._patience):
                raise Gone(f"{self.name} sent nothing for {self._patience:g} s")
            frame = self._connection.recv_bytes(max(most, MOST_WORDS) + 1)
        except EOFError as error:
            raise Gone(f"{self.name} is gone") from error
        except OSError as error:
            wrong = TOO_LONG if "bad message" in str(error) else error.strerror
            raise Gone(f"{self.name} is gone: {wrong}") from error
        if frame[:1] != kind:
            if kind != WORD and frame[:1] == WORD:
                raise Gone(f"{self.name} stops: {read_words(frame[1:]).get('stop', 'it does not say why')}")
            raise Gone(f"{self.name} sends something else than is due: it runs other code, or another program")
        if len(frame) > most + 1:
            raise Gone(f"{self.name}: {TOO_LONG}")
        return frame[1:]

    def close(self) -> None:
        self._connection.close()


class ServerEnd:
    """The server's connections, one a client.

    Attributes:
        client: None, as in `Link.client`. carried: bytes of the messages so far.
    """

    client = None

    def __init__(self, address: Address, key: bytes, patience: float = 600.0) -> None:
        try:
            self._listener = Listener((address.host, address.port), backlog=BACKLOG)
        except OSError as error:
            raise ValueError(f"cannot listen on {address}: {error.strerror}") from error
        self._peers: dict[int, _Peer] = {}
        self._key, self._patience, self.carried = key, patience, CarriedBytes()

    @property
    def address(self) -> Address:
        """Where it listens; with port 0 the one that was free."""
        host, port = self._listener.address[:2]
        return Address(str(host), int(port))

    def gather(self, num_clients: int, run: str, say: Any) -> None:
        """Wait until every client has come. Who is not of this run, or comes twice, is refused with a line.

        Args:
            run: names the run. say: callback that receives lines for the user.
        """
        while len(self._peers) < num_clients:
            connection = self._listener.accept()
            try:
                with _in_time(connection):
                    deliver_challenge(connection, self._key)
                    answer_challenge(connection, self._key)
            except AuthenticationError:
                say("somebody with another key was refused")
                continue
            except (OSError, EOFError):
                say("somebody who does not speak fedcomp was refused")
                continue
            try:
                self._welcome(_Peer(connection, "a new client", 10.0), num_clients, run)
                say(f"{len(self._peers)} of {num_clients} clients are here")
            except Gone as error:
                say(f"refused: {error}")

    def _welcome(self, peer: _Peer, num_clients: int, run: str) -> None:
        hello = read_words(peer.receive(WORD, MOST_WORDS))
        client, theirs = hello.get("client"), hello.get("run")
        wrong = None
        if theirs != run:
            wrong = f"it joins the run {theirs}, and this is {run}: give both commands the same options, data and code"
        elif not isinstance(client, int) or not 0 <= client < num_clients:
            wrong = f"there is no client {client}: they are 0 to {num_clients - 1}"
        elif client in self._peers:
            wrong = f"client {client} is here already"
        peer.send(WORD, words({"refused": wrong}))
        if wrong is not None:
            peer.close()
            raise Gone(wrong)
        peer.name, peer._patience = f"client {client}", self._patience
        self._peers[int(str(client))] = peer

    def send(self, client: int, message: bytes) -> None:
        """A message of the algorithm down. Raises Gone."""
        self._peers[client].send(MESSAGE, message)
        self.carried.down += len(message)
        self.carried.messages += 1

    def receive(self, client: int, most: int) -> bytes:
        """A message of the algorithm up, of at most `most` bytes. Raises Gone."""
        message = self._peers[client].receive(MESSAGE, most)
        self.carried.up += len(message)
        self.carried.messages += 1
        return message

    def report(self, client: int, num: int) -> bytes:
        """What a client reports of itself, `num` bytes. Raises Gone."""
        report = self._peers[client].receive(REPORT, num)
        if len(report) != num:
            raise Gone(f"client {client} reports {len(report)} bytes instead of {num}: it runs other code")
        return report

    def tell(self, **content: Any) -> None:
        """A word to all clients. Raises Gone."""
        for peer in self._peers.values():
            peer.send(WORD, words(content))

    def hear(self, wanted: str) -> None:
        """Wait until all clients have said `wanted`. Raises Gone."""
        for peer in self._peers.values():
            said = read_words(peer.receive(WORD, MOST_WORDS))
            if "stop" in said:
                raise Gone(f"{peer.name} stops: {said['stop']}")
            if said.get("done") != wanted:
                raise Gone(f"{peer.name} says something else than is due")

    def close(self, **content: Any) -> None:
        """Tell the clients why it ends, as far as they still listen, and close all connections."""
        for peer in self._peers.values():
            try:
                peer.send(WORD, words(content))
            except Gone:
                continue
        for peer in self._peers.values():
            peer.close()
        self._listener.close()


class ClientEnd:
    """A client's connection with the server. Attributes: client: its number. carried: as in `ServerEnd`."""

    def __init__(
        self, client: int, address: Address, key: bytes, run: str, patience: float = 600.0, wait: float = 60.0
    ) -> None:
        self.client, self.carried = client, CarriedBytes()
        self._server = _Peer(_connected(address, key, wait), f"the server {address}", patience)
        self._server.send(WORD, words({"client": client, "run": run}))
        refused = read_words(self._server.receive(WORD, MOST_WORDS)).get("refused")
        if refused is not None:
            raise Gone(f"the server refuses: {refused}")

    def send(self, message: bytes) -> None:
        """A message of the algorithm up. Raises Gone."""
        self._server.send(MESSAGE, message)
        self.carried.up += len(message)
        self.carried.messages += 1

    def receive(self, most: int) -> bytes:
        """A message of the algorithm down, of at most `most` bytes. Raises Gone."""
        message = self._server.receive(MESSAGE, most)
        self.carried.down += len(message)
        self.carried.messages += 1
        return message

    def report(self, data: bytes) -> None:
        """What the server is told beside messages. Raises Gone."""
        self._server.send(REPORT, data)

    def listen(self) -> Mapping[str, Any]:
        """The server's next word. Raises Gone."""
        return read_words(self._server.receive(WORD, MOST_WORDS))

    def say(self, **content: Any) -> None:
        """A word to the server. Raises Gone."""
        self._server.send(WORD, words(content))

    def close(self, why: str | None = None) -> None:
        """Say why it ends, if the server still listens, and close the connection."""
        if why is not None:
            with contextlib.suppress(Gone):
                self.say(stop=why)
        self._server.close()


@contextlib.contextmanager
def _in_time(connection: Connection) -> Iterator[None]:
    """Within the block the connection ends after `HANDSHAKE_SECONDS`, whatever the other end does not say."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        timer = threading.Timer(HANDSHAKE_SECONDS, same.shutdown, [socket.SHUT_RDWR])
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


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


def words(content: Mapping[str, Any]) -> bytes:
    """A frame's text."""
    return json.dumps(content).encode()


def read_words(frame: bytes) -> Mapping[str, Any]:
    """What a frame says. Raises Gone: it is no text of ours."""
    try:
        content = json.loads(frame)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise Gone("a frame is damaged or foreign")
    return content
