"""How clients come to a server: greeted side by side, over IPv4 or IPv6, to the run that their state is of."""

import errno
import fcntl
import os
import resource
import shutil
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import pytest
import torch

from fedcomp.cli.join import main as join_main
from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from fedcomp.records.checkpoint import Checkpoint, save
from fedcomp.records.run_folder import LOCK, owned
from fedcomp.remote import frames
from fedcomp.remote.client_end import ClientEnd, Hello
from fedcomp.remote.door import Door
from fedcomp.remote.frames import Address, Gone, Peer
from fedcomp.remote.processes import ServerProcess, join, states, why
from fedcomp.remote.run_number import drawn_number, keep_number, number_of
from fedcomp.remote.server_end import ServerEnd
from fedcomp.training.place import RunPlace
from tests.looped import looped
from tests.raising import raising
from tests.remote.ends import HERE, KEY, RUN, gathered, gathering, until, until_somebody_came


@contextmanager
def silent(address: Address, num: int = 1) -> Iterator[list[socket.socket]]:
    """Strangers who connect and say nothing."""
    strangers = [socket.create_connection((address.host, address.port)) for _ in range(num)]
    yield strangers
    for stranger in strangers:
        stranger.close()


def test_who_says_nothing_holds_up_nobody() -> None:
    said: list[str] = []
    end = ServerEnd(HERE, KEY, say=said.append)
    with silent(end.address, 9) as strangers:
        gathered(end, 0, 1)
        assert said == ["1 of 2 clients are here; missing: 1", "2 of 2 clients are here"]
        for stranger in strangers:
            stranger.settimeout(20)
            assert b"CHALLENGE" in stranger.recv(100)  # they are greeted still
    assert end.begin(0) == ()
    end.close(end=True)


def test_who_says_nothing_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "HANDSHAKE_SECONDS", 0.1)
    door = Door(HERE, KEY)
    with silent(door.address) as (stranger,):
        assert door.next(20) == "somebody who does not speak fedcomp"
        stranger.settimeout(20)
        while stranger.recv(100):
            pass
    door.close("enough")


def test_no_greeting_keeps_the_servers_process() -> None:
    before = set(threading.enumerate())
    door = Door(HERE, KEY)
    with silent(door.address) as (stranger,):
        assert stranger.recv(4)
        started = set(threading.enumerate()) - before
        assert len(started) == 3  # that of the door, that of the greeting, and its clock
        assert all(thread.daemon for thread in started)
        door.close("enough")


@looped("content, line", [({"stop": "its disk is full"}, "it stops: its disk is full"), ({"end": True}, "has ended")])
def test_the_server_ends_and_tells_those_who_wait(content: dict[str, Any], line: str) -> None:
    end = ServerEnd(HERE, KEY)
    with ThreadPool(1) as pool:
        late = pool.apply_async(ClientEnd, (end.address, KEY, Hello(0, RUN)))
        until_somebody_came(end)
        end.close(**content)
        with pytest.raises(Gone, match=line):
            late.get(20)


def test_connections_that_cannot_be_accepted_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "accept", raising(OSError(errno.EMFILE, "Too many open files")))
    with pytest.raises(ValueError, match="cannot accept more clients at .*: Too many open files"):
        Door(HERE, KEY).next(20)


def _words(root: Path) -> list[str]:
    return ["experiment=quickstart", "num_clients=3", f"output_root={root}", "wire=tcp", "quiet=true"]


def test_a_run_that_resumes_from_the_checkpoint_before_waits_for_patience_alone(tmp_path: Path) -> None:
    """The server was killed while it replaced its last one; and a run of its own number begins only once."""
    config, said, waits = compose(_words(tmp_path)), list[str](), list[float | None]()
    place, end = RunPlace(config), ServerEnd(HERE, KEY)
    end.gather = lambda num, run, number, wait: waits.append(wait)  # type: ignore[method-assign]
    simulation, _ = build_simulation(config, torch.device("cpu"))
    place.path.mkdir(parents=True)
    for name in ("config.yaml", "checkpoint-before.pt"):
        (place.path / name).touch()
        ServerProcess(end, place, need_all=False, patience=7.0, say=said.append).distribute(simulation, None, None)
    assert waits == [None, 7.0]
    assert ", 7 s at most" in said[1]
    end.close(end=True)


@looped(
    "words, said",
    [
        ("--client 3 num_clients=3", "--client 3: there is no such client, they are 0 to 2"),
        ("--client -1 num_clients=null", "--client -1: there is no such client, they are 0 and above"),
        ("--client 0 repeats=2", "wire=tcp takes no repeats"),
    ],
)
def test_wrong_arguments_end_with_2_before_the_server_is_asked(words: str, said: str, tmp_path: Path, capsys) -> None:
    given = [*words.split(), f"output_root={tmp_path}", "--server", "127.0.0.1:1", "--key", str(tmp_path / "none")]
    assert join_main(given) == 2
    assert capsys.readouterr().err.startswith(f"error: {said}")
    assert not list(tmp_path.iterdir())


def test_a_client_that_left_is_waited_for() -> None:
    """It may come again before the others have, and after them."""
    with gathering(2) as (end, said):
        ClientEnd(end.address, KEY, Hello(0, RUN)).close(why="it was interrupted")
        ClientEnd(end.address, KEY, Hello(0, RUN)).close()
        other = ClientEnd(end.address, KEY, Hello(1, RUN))
        until(lambda: list(end._peers) == [1])  # and so the server still waits
        again = ClientEnd(end.address, KEY, Hello(0, RUN))
    assert end.begin(0) == ()
    end.tell_round(0, (), (0, 1))
    assert again.listen()["round"] == other.listen()["round"] == 0
    assert said.count("2 of 2 clients are here") == 2


@looped(
    "hello, line",
    [
        ({"run": "other"}, "it joins the run other, and this is a run: give both the same options, data and code"),
        ({"client": 7}, "there is no client 7: they are 0 to 1"),
        ({"client": 0}, "client 0 is here already"),
        ({"client": "0"}, "there is no client 0"),
        ({"client": True}, "there is no client True"),
        ({"has": "often"}, "client 1 says that it has its state after rounds often: it runs other code"),
        ({"has": [None]}, "client 1 says that it has its state after rounds"),
        ({"has": 3}, "client 1 says that it has its state after rounds 3"),
    ],
)
def test_who_says_what_cannot_be_is_refused(hello: dict[str, Any], line: str) -> None:
    with gathering(2) as (end, said):
        there = [ClientEnd(end.address, KEY, Hello(0, RUN))]
        with pytest.raises(Gone, match=f"^the server refuses: {line}"):
            ClientEnd(end.address, KEY, Hello(**{"client": 1, "run": RUN} | hello))
        there.append(ClientEnd(end.address, KEY, Hello(1, RUN)))
    assert said[1].startswith(f"refused: {line}")
    assert said[2:] == ["2 of 2 clients are here"]
    end.close(end=True)


@pytest.mark.parametrize("greeting", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"\0\0\0\4abcd"])
def test_another_server_is_named(greeting: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "HANDSHAKE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = Address(*other.getsockname())
        threading.Thread(target=lambda: other.accept()[0].sendall(greeting), daemon=True).start()
        with pytest.raises(Gone, match=f"there is no server at {address}: it does not answer as fedcomp-serve does"):
            ClientEnd(address, KEY, Hello(0, RUN), wait=0)


def test_why_a_process_ends_is_one_line() -> None:
    assert why(KeyboardInterrupt()) == "it was interrupted"
    assert why(ValueError("its disk\nis full")) == "its disk is full"
    assert why(AssertionError()) == "AssertionError"


def test_ipv6() -> None:
    try:
        end = ServerEnd(Address.of("[::1]:0"), KEY)
    except ValueError as error:
        pytest.skip(str(error))
    gathered(end, 0)
    assert str(end.address).startswith("[::1]:")
    with pytest.raises(ValueError, match=r"cannot listen on \[::1\]:\d+: Address already in use"):
        ServerEnd(end.address, KEY)


def test_short_frames_are_sent_at_once() -> None:
    end = ServerEnd(HERE, KEY)
    (client,) = gathered(end, 0)
    for peer in (client._server, end._peers[0]):
        with frames._as_socket(peer._connection) as same:
            assert same.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_server_may_have_more_than_a_thousand_clients() -> None:
    high = 1100
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= high:
        pytest.skip("too few files may be open")
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = socket.create_connection(server.getsockname())
        here = server.accept()[0]
    with here, there:
        os.dup2(here.fileno(), high)
        peer = Peer(Connection(high), "client 1050")
        peer.check_there()
        there.close()
        with pytest.raises(Gone, match="client 1050 is gone"):
            peer.check_there()
        peer.close()


@pytest.mark.parametrize("header", [struct.pack("!iQ", -1, 1 << 62), struct.pack("!iQ", -1, (1 << 64) - 1)])
def test_a_length_that_is_none_is_a_line(header: bytes) -> None:
    """Where any length would do: while a round is given up, whose messages are dropped."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as there:
        peer = Peer(Connection(server.accept()[0].detach()), "client 1")
        there.sendall(header)
        with pytest.raises(Gone, match="client 1 is gone: a message is longer than any that it may send"):
            peer.next()
        peer.close()


def test_the_number_of_a_run_is_drawn_once(tmp_path: Path) -> None:
    assert number_of(tmp_path) is None
    number = drawn_number(tmp_path)
    assert len(number) == 16
    assert drawn_number(tmp_path) == number_of(tmp_path) == number
    (tmp_path / "other").mkdir()
    assert drawn_number(tmp_path / "other") != number
    for damage in (b"", b"\xff"):
        (tmp_path / "run_number").write_bytes(damage)
        with pytest.raises(ValueError, match="run_number is damaged: put it back"):
            drawn_number(tmp_path)


def test_a_client_with_the_state_of_another_run_is_refused() -> None:
    line = (
        "client 1 has its state of run a5, and this is run b7 of the same options: go on with the server of that run, "
        "or give this client overwrite=true, which removes that state"
    )
    with gathering(4, "b7") as (end, said):
        with pytest.raises(Gone) as refusal:
            ClientEnd(end.address, KEY, Hello(1, RUN, [4, 0], "a5"))
        assert str(refusal.value) == f"the server refuses: {line}"
        assert said == [f"refused: {line}"]
        new = ClientEnd(end.address, KEY, Hello(0, RUN))
        same = ClientEnd(end.address, KEY, Hello(1, RUN, [4, 0], "b7"))
        gives_up = ClientEnd(end.address, KEY, Hello(2, RUN, [4, 0], "a5", overwrite=True))
        goes_on = ClientEnd(end.address, KEY, Hello(3, RUN, [4, 0], "b7", overwrite=True))
    assert [one.number for one in (new, same, gives_up, goes_on)] == ["b7"] * 4
    assert [end._peers[number].has for number in range(4)] == [(0,), (4, 0), (0,), (4, 0)]


class Ended:
    """The end of a client whose server accepts it, and ends the run at once."""

    past = False

    def __init__(self, hello: Hello, number: str) -> None:
        self.client, self.hello, self.number = hello.client, hello, number

    def listen(self) -> dict[str, Any]:
        return {"end": True}

    def close(self, why: str | None = None) -> None:
        assert why is None


def test_a_client_keeps_the_number_beside_its_state(tmp_path: Path) -> None:
    folder = RunPlace(compose(_words(tmp_path))).path / "client_1"
    path, config_hash = folder / "checkpoint.pt", "/".join(folder.parts[-3:])

    def joined(number: str, *more: str, client: int = 1) -> Hello:
        said: list[Hello] = []

        def connect(hello: Hello) -> Any:
            said.append(hello)
            return Ended(hello, number)

        join(compose([*_words(tmp_path), *more]), client, connect, lambda line: None)
        return said[0]

    assert joined("a5").number is None
    assert number_of(folder) == "a5"
    assert joined("b7").number is None  # it has no state that another run could need
    save(path, Checkpoint(4, {}, {}, 0.0), config_hash)
    again = joined("b7")
    assert (again.number, again.has, again.overwrite) == ("b7", [4, 0], False)
    assert states(path, config_hash).keys() == {4}
    gives_up = joined("c9", "overwrite=true")
    assert (gives_up.number, gives_up.overwrite) == ("b7", True)
    assert not states(path, config_hash)
    assert number_of(folder) == "c9"
    save(path, Checkpoint(2, {}, {}, 0.0), config_hash)
    joined("c9", "overwrite=true")
    assert states(path, config_hash).keys() == {2}
    shutil.copytree(folder, folder.with_name("client_2"))
    assert joined("c9", client=2).has == [0]  # the state of client 1 is not that of client 2


def test_a_client_that_is_refused_leaves_no_folder(tmp_path: Path) -> None:
    config = compose(_words(tmp_path / "runs"))
    for client, line in ((1, "no"), (7, "there is no client 7")):
        with pytest.raises(ValueError, match=line):
            join(config, client, raising(Gone("no")), lambda line: None)
        assert list(tmp_path.iterdir()) == []
    folder = RunPlace(config).path / "client_1"
    folder.mkdir(parents=True)
    keep_number(folder, "a5")
    with pytest.raises(Gone):
        join(config, 1, raising(Gone("no")), lambda line: None)
    assert number_of(folder) == "a5"


def test_a_lock_that_its_owner_has_removed_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may have opened it before, and lock it then."""
    folder = tmp_path / "folder"
    locked, real = list[int](), fcntl.flock

    def removed_before(file: Any, operation: int) -> None:
        if not locked:
            (folder / LOCK).unlink()
            folder.rmdir()
        locked.append(operation)
        real(file, operation)

    monkeypatch.setattr(fcntl, "flock", removed_before)
    with owned(folder):
        assert (folder / LOCK).exists()
    assert len(locked) == 2
    assert not folder.exists()
