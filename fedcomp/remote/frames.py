"""Frames between a server process and client processes, over TCP: bytes alone, and authenticated.

The connections are those of `multiprocessing.connection`, of which only bytes are used: nothing is ever unpickled. Both
ends prove by an HMAC challenge that they hold the same key; the bytes themselves are not encrypted. A frame begins with
one byte that says what it is: a message of the algorithm, a word, or a client's report. Only messages count as payload;
everything else is framing.
"""

import contextlib
import json
import multiprocessing.connection
import re
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fedcomp.core.parse import parse_json
from fedcomp.records.atomic_write import atomic_path

MESSAGE, WORD, REPORT = b"m", b"w", b"r"
HANDSHAKE_SECONDS = 10.0
START_SECONDS = 60.0
"""Within them the server begins, where its clients were started before it."""
BACKLOG = 128
TOO_LONG = "a message is longer than any that it may send"
MOST_WORDS = 1 << 20
"""Bytes of the longest frame that is no message."""


class Gone(ValueError):
    """The other end is gone, late, or says what it must not; one line names it and what to do."""


class Again(Exception):
    """The server makes the round again: a client of the cohort is gone."""


@dataclass
class CarriedBytes:
    """Bytes of messages, by direction, and how many messages there were.

    Attributes:
        again: bytes, both ways, of rounds that were made again, and to clients that came back.
    """

    up: int = 0
    down: int = 0
    messages: int = 0
    again: int = 0


@dataclass(frozen=True)
class Address:
    """HOST:PORT; an address of IPv6 stands in brackets."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> "Address":
        """Raises ValueError: it is not HOST:PORT."""
        host, _, port = text.rpartition(":")
        inside = host.removeprefix("[").removesuffix("]")
        bracketed = f"[{inside}]" if ":" in inside else inside
        if not inside or host != bracketed or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
            raise ValueError(f"{text!r} is no address: give HOST:PORT, such as 127.0.0.1:7000 or [::1]:7000")
        return cls(inside, int(port))

    @property
    def is_ipv6(self) -> bool:
        """Whether the host is an address of IPv6; a name may stand for one too."""
        return ":" in self.host

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if self.is_ipv6 else f"{self.host}:{self.port}"


def listening(address: Address) -> socket.socket:
    """A socket that listens there. Raises ValueError: it cannot."""
    family = socket.AF_INET6 if address.is_ipv6 else socket.AF_INET
    both = address.is_ipv6 and socket.has_dualstack_ipv6()  # [::] takes clients of IPv4 too
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        raise ValueError(f"cannot listen on {address}: {error.strerror}") from error


def read_key(path: Path, make: bool) -> bytes:
    """The shared key in a file; a server makes one that is missing, readable by its owner alone."""
    if make and not path.exists():
        with atomic_path(path) as temporary:  # a client that looks for it finds a whole key or none
            temporary.touch(mode=0o600)
            temporary.write_text(secrets.token_hex(32) + "\n")
    if path.is_dir():
        raise ValueError(f"the key {path} is a folder: give a file")
    if not path.is_file():
        raise ValueError(f"there is no key {path}: fedcomp-serve makes one; copy it to this machine")
    key = path.read_bytes().strip()
    if not key:
        raise ValueError(f"the key {path} is empty: remove it, and fedcomp-serve makes one")
    return key


def await_key(path: Path, seconds: float, say: Callable[[str], None]) -> bytes:
    """The shared key, which a server that starts beside may make only within so many seconds; as `read_key`."""
    until = time.monotonic() + seconds
    if not path.exists():
        say(f"there is no key {path} yet: waiting {seconds:g} s for fedcomp-serve to make it")
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.1)
    return read_key(path, make=False)


class Peer:
    """One connection. `name`: of its other end; `has`: the rounds after which that one has its state."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection, self.name, self._patience = connection, name, 0.0
        self.has: tuple[int, ...] = (0,)
        with _as_socket(connection) as same:
            same.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a short message does not wait for the next one

    def be_patient(self, seconds: float) -> None:
        """How long the other end may take to send a frame, or to read one."""
        self._patience = seconds
        limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
        with _as_socket(self._connection) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def keep_alive(self, seconds: float) -> None:
        """Notice within about so many seconds that the other end's machine is gone; it may take longer to answer."""
        with _as_socket(self._connection) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in {"TCP_KEEPIDLE": seconds / 2, "TCP_KEEPINTVL": seconds / 10, "TCP_KEEPCNT": 5}.items():
                if hasattr(socket, name):
                    same.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), min(max(1, int(value)), 32767))

    def tell(self, **content: Any) -> None:
        """Send a word. Raises Gone."""
        self.send(WORD, json.dumps(content).encode())

    def hear(self) -> Mapping[str, Any]:
        """The next frame, which must be a word. Raises Gone."""
        return read_words(self.receive(WORD, MOST_WORDS))

    def send(self, kind: bytes, data: bytes) -> None:
        """Raises Gone."""
        try:
            self._connection.send_bytes(kind + data)
        except BlockingIOError as error:
            raise Gone(f"{self.name} read nothing for {self._patience:g} s") from error
        except OSError as error:
            raise self._last_word() or Gone(f"{self.name} is gone: {error.strerror or error}") from error

    def _last_word(self) -> Exception | None:
        """Why the other end closed the connection, if it has said so."""
        with contextlib.suppress(Gone):
            while multiprocessing.connection.wait([self._connection], 0):
                kind, data = self.next(MOST_WORDS)
                said = read_words(data) if kind == WORD else {}
                if "left_out" in said or "stop" in said:
                    return self.stops(said)
        return None

    def receive(self, kind: bytes, most: int) -> bytes:
        """The next frame, which must be of this kind, without its kind. Raises Gone, Again."""
        found, data = self.next(max(most, MOST_WORDS))
        if found != kind:
            if kind != WORD and found == WORD:
                raise self.stops(read_words(data))
            raise Gone(f"{self.name} sends something else than is due: it runs other code, or another program")
        if len(data) > most:
            raise Gone(f"{self.name}: {TOO_LONG}")
        return data

    def next(self, most: int | None = None) -> tuple[bytes, bytes]:
        """The next frame: its kind, and what it holds, at most `most` bytes. Raises Gone."""
        try:
            frame = self._connection.recv_bytes(None if most is None else most + 1)
        except BlockingIOError as error:
            raise Gone(f"{self.name} sent nothing for {self._patience:g} s") from error
        except EOFError as error:
            raise Gone(f"{self.name} is gone") from error
        except (MemoryError, OverflowError) as error:  # of a length that is no length
            raise Gone(f"{self.name} is gone: {TOO_LONG}") from error
        except OSError as error:
            wrong = TOO_LONG if "bad message" in str(error) else error.strerror or error
            raise Gone(f"{self.name} is gone: {wrong}") from error
        return frame[:1], frame[1:]

    def stops(self, said: Mapping[str, Any]) -> Exception:
        """Why the other end says a word where something else is due."""
        if "again" in said:
            return Again()
        if "left_out" in said:
            why = said["left_out"]
            return Gone(f"{self.name} goes on without this client ({why}); the same command joins again")
        return Gone(f"{self.name} stops: {said.get('stop', 'it does not say why')}")

    def check_there(self) -> None:
        """Where nothing is due: raises Gone if the other end is gone, or stops."""
        if multiprocessing.connection.wait([self._connection], 0):
            raise self.stops(self.hear())

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@contextlib.contextmanager
def in_time(connection: Connection) -> Iterator[None]:
    """Within the block the connection ends after `HANDSHAKE_SECONDS`, whatever the other end does not say."""
    with _as_socket(connection) as same:
        timer = threading.Timer(HANDSHAKE_SECONDS, _end, [same])
        timer.daemon = True  # a process that ends does not wait for it
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _end(connected: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other end was faster
        connected.shutdown(socket.SHUT_RDWR)


def _as_socket(connection: Connection) -> socket.socket:
    return socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)


def read_words(frame: bytes) -> Mapping[str, Any]:
    """What a frame says. Raises Gone: it is no text of ours."""
    try:
        content = parse_json(frame)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise Gone("a frame is damaged or foreign")
    return content
