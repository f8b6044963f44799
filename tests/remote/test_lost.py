"""Clients that die, are late or come back: the run goes on, and ends as the simulation does without them."""

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import flatten
from fedcomp.participation.absent import WithoutAbsent, read_absent
from fedcomp.records.run_folder import clear, owned
from fedcomp.remote import kept
from fedcomp.remote.client_end import ClientEnd, Hello
from fedcomp.remote.frames import Gone
from fedcomp.remote.kept import ABSENT, Kept
from fedcomp.remote.link import ClientsLink, ServersLink
from fedcomp.remote.processes import follow, states
from fedcomp.remote.server_end import Lost, ServerEnd
from fedcomp.remote.simulation import RemoteSimulation, ServerSimulation, can_leave_out
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Field, Ledger, Payload
from fedcomp.wire.coding import Float
from fedcomp.wire.packing import pack
from tests.algorithm.conformance_cases import CASES
from tests.forked import context
from tests.raising import raising
from tests.refused import refused
from tests.remote.ends import HERE, KEY, PATIENCE, RUN, gathered, until_somebody_came
from tests.thorough import thorough

ROUNDS, DIES, RETURNS = 9, 3, 6


class Dying(ClientEnd):
    """A client's end whose process dies in round `dies`, when a part of its message is sent."""

    dies = -1

    def send(self, message: bytes) -> None:
        if self.round == self.dies and not self.past:
            os.write(self._server._connection.fileno(), struct.pack("!i", len(message) + 1) + b"m" + message[:-1])
            os._exit(1)
        super().send(message)

    def listen(self) -> Any:
        word = super().listen()
        self.round = word.get("round")
        return word


def _client(make: Callable[[], Simulation], number: int, end: ServerEnd, folder: Path, dies: int) -> None:
    path = folder / f"{number}.pt"
    own = Dying(end.address, KEY, Hello(number, RUN, [*states(path, "hash"), 0]), PATIENCE)
    own.dies = dies
    follow(RemoteSimulation.of(make(), own), own, path, "hash")
    own.close()


def _with_a_loss(make: Callable[[], Simulation], folder: Path, lost: int) -> tuple[Any, Ledger, list[str], dict]:
    """A run in which a client dies within round DIES and comes back in round RETURNS; saved every other round."""
    said: list[str] = []
    end, first, ledger = ServerEnd(HERE, KEY, PATIENCE, said.append), make(), Ledger()
    end.may_go_on, end.kept = True, Kept(folder)

    def start(number: int, dies: int = -1) -> Any:
        process = context.Process(target=_client, args=(make, number, end, folder, dies))
        process.start()
        return process

    num = len(first.shards.sizes)
    processes = [start(number, DIES if number == lost else -1) for number in range(num)]
    end.gather(num, RUN)
    sim = ServerSimulation.of(first, end)
    state = sim.init()
    for index in range(ROUNDS):
        if index == RETURNS:
            processes.append(start(lost))
            until_somebody_came(end)
        state, _ = sim.round(index, state, ledger)
        if index % 2:
            sim.gather_state(state)
    end.close(end=True)
    for process in processes:
        process.join(20)
    return state, ledger, said, dict(sim.absent)


# An error memory at each client; the step goes to all; two exchanges, Q at all; control variates; a client's own model.
@pytest.mark.parametrize("name", ["fedavg-topk", *thorough(["fedavg-sign_both", "powersgd", "scaffold", "decomfl"])])
def test_a_client_dies_and_comes_back(name: str, tmp_path: Path) -> None:
    (case,) = [one for one in CASES if one.name == name]
    world = replace(case.simulation(), chunk_size=1, rounds=ROUNDS)
    assert can_leave_out(world)
    lost = next(client for client in world.cohort(DIES).clients if client in world.cohort(RETURNS + 1).clients)
    found, counted, said, absent = _with_a_loss(lambda: replace(world), tmp_path, lost)
    wanted = dict.fromkeys(range(DIES, RETURNS), (lost,))
    assert {index: clients for index, clients in absent.items() if clients} == wanted
    assert read_absent(tmp_path / ABSENT) == wanted
    assert f"client {lost} is gone: got end of file during message; the run goes on without it" in said[-2]
    assert said[-1] == f"client {lost} is back, and makes rounds 3 to {RETURNS}"  # it had saved after two rounds

    alone = replace(world, participation=WithoutAbsent(world.participation, absent))
    state, ledger = world.init(), Ledger()
    for index in range(ROUNDS):
        state, _ = alone.round(index, state, ledger)
    assert counted.counters() == ledger.counters()
    key = alone.key.fold_in("deployed", 0)
    models = [sim.algorithm.evaluation_models(one, key) for sim, one in ((alone, state), (alone, found))]
    for model, other in zip(*(one.values() for one in models), strict=True):
        for part, tensor in flatten(model).items():
            assert torch.equal(tensor, flatten(other)[part]), part


def test_who_is_late_or_stops_is_left_out_with_a_line() -> None:
    said: list[str] = []
    end = ServerEnd(HERE, KEY, patience=0.2, say=said.append)
    end.may_go_on = True
    late, stops, there = gathered(end, 0, 1, 2)
    assert end.begin(0) == ()
    end.tell_round(0, (), (0, 1, 2))
    stops.close(why="its disk is full")
    for client, line in ((0, r"client 0 sent nothing for 0.2 s"), (1, "client 1 stops: its disk is full")):
        with pytest.raises(Lost):
            end.receive(client, 10)
        assert said[-1] == f"{line}; the run goes on without it, and it may come back"
    assert late.listen()["round"] == 0
    with pytest.raises(Gone, match=r"goes on without this client \(client 0 sent nothing for 0.2 s\); the same comma"):
        late.listen()
    with pytest.raises(Gone, match="client 1 is gone, and the method needs its message"):
        end.receive(1, 10)
    there.close()
    with pytest.raises(Gone, match=r"no client is here \(client 2 is gone.*\): start them and the server again"):
        end.begin(1)


def test_who_sends_after_it_was_left_out_hears_why() -> None:
    """The server has closed the connection without reading on, so that sending fails before anything is received."""
    end = ServerEnd(HERE, KEY, patience=0.2)
    end.may_go_on = True
    late, _ = gathered(end, 0, 1)
    end.begin(0)
    end.tell_round(0, (), (0, 1))
    with pytest.raises(Lost):
        end.receive(0, 10)
    with pytest.raises(Gone, match=r"goes on without this client \(client 0 sent nothing for 0.2 s\); the same comma"):
        list(map(late.send, [bytes(100_000)] * 100))
    end.close(end=True)


def test_who_sends_what_cannot_be_read_is_left_out() -> None:
    """A whole frame of the right kind; only what it holds is no message."""
    message = Payload({"values": Field(torch.arange(3.0).repeat(2, 1), Float())})
    cohort = Cohort.of((0, 1), torch.full((2,), 0.5))
    line = "client 1 sends a message that cannot be read (field values of row 1: the message ends after 88 of 96 bits)"
    for goes_on, error in ((True, Lost), (False, Gone)):
        said: list[str] = []
        end = ServerEnd(HERE, KEY, say=said.append)
        end.may_go_on = goes_on
        one, other = gathered(end, 0, 1)
        one.send(pack(message, 0))
        one.report(b"seven b")
        other.send(pack(message, 1)[:-1])
        with pytest.raises(error) as cut:
            ServersLink(end, cohort, Ledger()).up(message)
        with pytest.raises(error) as short:
            end.report(0, 8)
        lines = said[-2:] if goes_on else [str(cut.value), str(short.value)]
        assert lines[0].startswith(f"{line}: it runs other code")
        assert lines[1].startswith("client 0 reports 7 bytes instead of 8: it runs other code")
        assert ("the run goes on without it, and it may come back" in lines[0]) == goes_on
        end.close()


@dataclass(frozen=True)
class Cut(Float):
    """Writes fewer bits than it counts."""

    def write(self, row: torch.Tensor) -> torch.Tensor:
        return super().write(row)[:-9]


@dataclass(frozen=True)
class Doubling(Float):
    """Reads what was not written."""

    def read(self, *given: Any) -> tuple[torch.Tensor, int]:
        row, at = super().read(*given)
        return 2 * row, at


@dataclass(frozen=True)
class Greedy(Float):
    """Reads more than was written."""

    def read(self, bits: torch.Tensor, start: int, num: int, dtype: torch.dtype) -> tuple[torch.Tensor, int]:
        return super().read(bits, start, num + 1, dtype)


def _up(field: Field) -> None:
    """Client 3, the second of a round of two, sends this."""
    cohort, ledger = Cohort.of((0, 3), torch.full((2,), 0.5)), Ledger()
    ledger.begin_round(cohort)
    end: Any = SimpleNamespace(client=3, send=lambda message: None)
    ClientsLink(end, {}, cohort, ledger).up(Payload({"values": field}))


ONES = torch.ones(2, 3)
test_a_client_sends_nothing_but_what_it_means = refused(
    [
        (lambda: _up(Field(ONES[:1], Float())), "^a message of 1 rows, values, goes between the server and the 2 "),
        (lambda: _up(Field(ONES, Float(), torch.tensor([3, 1]))), "^field values: entry 1 is not zero, but behind its"),
        (lambda: _up(Field(ONES, Cut())), "^field values of row 0: Cut writes 87 bits of it, and counts 96$"),
        (lambda: _up(Field(ONES, Doubling())), "^field values arrives with other entries than were sent"),
        (lambda: _up(Field(ONES, Greedy())), "ends after 96 of 128 bits: its coding does not read what it writes$"),
    ]
)


def test_a_run_that_needs_all_stops() -> None:
    end = ServerEnd(HERE, KEY)
    first, _ = gathered(end, 0, 1)
    end.begin(0)
    first.close()
    with pytest.raises(Gone, match="client 0 is gone"):
        end.begin(1)
    (needs, not_) = (next(case for case in CASES if case.name == name).simulation() for name in ("marina", "fedavg"))
    assert not can_leave_out(needs)
    assert can_leave_out(not_)


def test_what_is_kept_outlives_the_server(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    for index in range(6):
        kept.begin(index, (1,) if index > 2 else (), range(3))
        kept.add(1, b"%d" % index)
        if index in (1, 4):
            kept.save((1,) if index > 2 else ())
    assert [one.messages[1] for one in kept.since(1, [0, 2], 6)] == [[b"2"], [b"3"], [b"4"], [b"5"]]
    again = Kept(tmp_path)  # of a server that was killed in round 5 or later
    again.begin(5, (1,), range(3))
    assert again.absent == dict.fromkeys((3, 4, 5), (1,))
    rounds = again.since(1, [0, 2], 5)
    found = [(one.index, one.absent, one.messages[1]) for one in rounds]
    assert found == [(2, (), [b"2"]), (3, (1,), [b"3"]), (4, (1,), [b"4"])]
    assert again.since(0, [5, 2], 5) == []
    with pytest.raises(Gone, match=r"client 1 has its state after rounds \[0, 1\], and the run goes on after round 5"):
        again.since(1, [1, 0], 5)
    with pytest.raises(Gone, match="bring its folder back"):
        again.since(0, [2], 5)  # it was there, and nothing was kept for it
    file = tmp_path / "kept.jsonl"
    for damage in (b"\xff\n", b"null\n", b"{half\n"):
        file.write_bytes(file.read_bytes().splitlines(True)[0] + damage)
        with pytest.raises(ValueError, match=r"kept.jsonl, line 2 is no round: put the file back"):
            again.since(1, [0], 5)
    again.save(())
    assert not (tmp_path / "kept.jsonl").exists()
    again.begin(5, (1,), range(3))
    again.save((1,))
    assert (tmp_path / "kept.jsonl").exists()
    again.end()
    assert not (tmp_path / "kept.jsonl").exists()


def test_a_round_that_is_made_again_with_all_is_without_nobody(tmp_path: Path) -> None:
    """The server was killed after its clients had saved, before it had itself."""
    for absent in ((1,), ()):
        rounds = Kept(tmp_path)
        rounds.begin(0, absent, range(3))
        rounds.save(absent)
        assert (tmp_path / ABSENT).exists() == bool(absent)


def test_a_server_that_needs_all_knows_who_was_left_out_before(tmp_path: Path) -> None:
    """And that nobody is in a round that it makes again."""
    before = Kept(tmp_path)
    for index in range(2):
        before.begin(index, (1,), range(2))
        before.save((0, 1))  # for either, so that it need not bring its state
    end = ServerEnd(HERE, KEY)
    end.kept = Kept(tmp_path)
    clients = gathered(end, 0, 1)
    for client in clients:
        client.say(done="saved")
    assert end.begin(1) == ()
    end.save()
    assert end.kept.absent == read_absent(tmp_path / ABSENT) == {0: (1,)}


def test_a_disk_without_room_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = Kept(tmp_path)
    rounds.begin(0, (1,), range(3))
    monkeypatch.setattr(kept, "sync", raising(OSError(28, "No space left on device")))
    with pytest.raises(ValueError, match=r"cannot write .*kept.jsonl: No space left on device"):
        rounds.save((1,))


class Told:
    """What a server would say to client 0, which is in no cohort, word by word."""

    client, past = 0, False

    def __init__(self, *words: dict[str, Any]) -> None:
        self._words = [*words, {"end": True}]

    def listen(self) -> dict[str, Any]:
        return self._words.pop(0)

    def say(self, **content: Any) -> None:
        assert content == {"done": "saved"}


def test_a_client_keeps_the_state_that_the_server_goes_on_from(tmp_path: Path) -> None:
    """The server stops again and again before it has saved itself, as with a full disk."""
    (case,) = [one for one in CASES if one.name == "fedavg"]
    path, save = tmp_path / "checkpoint.pt", {"save": True}

    def follows(*words: dict[str, Any]) -> None:
        told: Any = Told(*words)
        follow(RemoteSimulation.of(replace(case.simulation(), chunk_size=1), told), told, path, "hash")

    rounds = [{"round": index, "absent": [0]} for index in range(2)]
    follows(rounds[0], save, rounds[1], save)
    for _ in range(2):
        follows(rounds[1], save)
        assert states(path, "hash").keys() == {1, 2}
    path.write_bytes(b"damaged")
    assert states(path, "hash").keys() == {1}


def test_a_client_that_waits_keeps_its_folder_where_the_run_starts_anew(tmp_path: Path) -> None:
    """`overwrite=true` at a server on the same machine."""
    with owned(tmp_path), owned(tmp_path / "client_0"), owned(tmp_path / "client_1"):
        pass
    with owned(tmp_path), owned(tmp_path / "client_1"):
        clear(tmp_path)
        assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["client_1"]
