"""The server's door: who connects is greeted beside the rounds, so that one who says nothing holds up nobody.

A thread accepts connections, and another one greets each of them: both ends prove that they hold the key, and the
client says who it is. Who has done so waits here until the server looks, which is between two rounds.
"""

import contextlib
import queue
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

from fedcomp.remote.frames import Address, Gone, Peer, in_time, listening

MOST_GREETED = 128
"""Connections that are greeted at a time; more of them wait until one is done."""


@dataclass(frozen=True)
class Arrived:
    """A client that holds the key. `peer`: its connection; `hello`: what it says of itself."""

    peer: Peer
    hello: Mapping[str, Any]


class Door:
    """Where a server listens. Raises ValueError: it cannot listen there.

    Attributes:
        address: where it listens; with port 0 the one that was free.
    """

    def __init__(self, address: Address, key: bytes) -> None:
        self._socket = listening(address)
        self.address = Address(*self._socket.getsockname()[:2])
        self._key, self._closed = key, False
        self._came: queue.SimpleQueue[Arrived | str | OSError] = queue.SimpleQueue()
        self._places = threading.Semaphore(MOST_GREETED)
        threading.Thread(target=self._accept, daemon=True).start()

    def next(self, seconds: float | None) -> Arrived | str | None:
        """Who came next, or why one was refused; None: nobody within so many seconds (None: without limit).

        Raises ValueError: no more connections can be accepted.
        """
        try:
            came = self._came.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(came, OSError):
            raise ValueError(f"cannot accept more clients at {self.address}: {came.strerror}") from came
        return came

    def close(self, why: str) -> None:
        """Listen no more, and tell those who wait why."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # which wakes the thread
        self._socket.close()
        while not self._came.empty():
            if isinstance(came := self._came.get(), Arrived):
                with contextlib.suppress(Gone):
                    came.peer.tell(refused=why)
                came.peer.close()

    def _accept(self) -> None:
        while True:
            self._places.acquire()
            try:
                connection = Connection(self._socket.accept()[0].detach())
            except ConnectionAbortedError:  # it has left again
                self._places.release()
                continue
            except OSError as error:
                if not self._closed:
                    self._came.put(error)
                return
            threading.Thread(target=self._greet, args=(connection,), daemon=True).start()

    def _greet(self, connection: Connection) -> None:
        came: Arrived | str = "somebody who does not speak fedcomp"
        try:
            with in_time(connection):
                deliver_challenge(connection, self._key)
                answer_challenge(connection, self._key)
                peer = Peer(connection, "a new client")
                came = Arrived(peer, peer.hear())
        except AuthenticationError:
            came = "somebody with another key"
        except Gone as error:
            came = str(error)
        except (OSError, EOFError, AssertionError):
            pass
        finally:
            if not isinstance(came, Arrived):
                connection.close()
            self._came.put(came)
            self._places.release()
