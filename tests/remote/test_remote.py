"""Runs between processes equal the simulation; who is wrong, late or gone is refused in a line."""

import functools
import socket
import threading
from collections.abc import Iterator
from dataclasses import fields, replace
from multiprocessing.connection import Client
from multiprocessing.pool import Pool
from pathlib import Path

import pytest
import torch

from fedcomp.check import noninterference, world
from fedcomp.core.pytree import flatten
from fedcomp.remote.client_end import ClientEnd, Hello
from fedcomp.remote.frames import Address, Gone, await_key, read_key
from fedcomp.remote.server_end import ServerEnd
from fedcomp.remote.simulation import check_possible, fields_of_clients
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger
from tests.algorithm.conformance_cases import CASES
from tests.check.test_noninterference import ServerPeeks
from tests.conformance.algorithm import AlgorithmCase
from tests.forked import context
from tests.parts import Compressor, Dense, FedAvg, ServerSgd, Sgd
from tests.raising import raising
from tests.remote.ends import HERE, KEY, PATIENCE, RUN, bytes_of, gathered, gathering, over_tcp, until

FEW = ("fedavg", "fedavg-sign_both", "fedavg-topk", "scaffold", "powersgd")
FEW += ("bicompfl_gr", "fedpm", "deltamask", "m3", "decomfl", "feddistill")
SIZES = world.SIZES[:4]
"""Samples of the clients, of whom three take part in a round: clients 0 and 2 are away for a round and come back."""


def _possible(case: AlgorithmCase) -> bool:
    try:
        check_possible(case.simulation())
    except ValueError:
        return False
    return True


@pytest.fixture(scope="module")
def clients() -> Iterator[Pool]:
    """A process for each client, for one run after another: starting it takes longer than its rounds."""
    noninterference.record(_one_at_a_time("bicompfl_cfl"), Ledger())  # what that compiles, none compiles by itself
    with context.Pool(len(SIZES)) as pool:
        yield pool


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case.name in FEW else pytest.mark.thorough, id=case.name) for case in CASES]
)
def test_a_run_between_processes_is_that_of_the_simulation(case: AlgorithmCase, clients: Pool, tmp_path: Path) -> None:
    """The models that the server tests and saves, clients' metrics, every bit of the ledger, every byte of messages."""
    if case.name not in FEW and not _possible(case):
        pytest.skip("refused between processes")
    ledger, alone = Ledger(), _one_at_a_time(case.name)
    rounds, models, last = noninterference.record(alone, ledger)
    served = over_tcp(functools.partial(_one_at_a_time, case.name), clients, tmp_path)
    for index, wanted in enumerate(models):
        found = {
            f"{name}.{part}": tensor
            for name, one in served.models[index].items()
            for part, tensor in flatten(one).items()
        }
        assert found.keys() == wanted.keys()
        for name, tensor in wanted.items():
            assert torch.equal(found[name], tensor), f"round {index + 1}: {name}"
    for name in fields_of_clients(alone):
        assert torch.equal(getattr(served.state, name), getattr(last, name)), name
    assert served.ledger.counters() == ledger.counters()
    if alone.told_weights == "none":  # whose bytes before the first round are not recorded
        assert (served.carried.up, served.carried.down) == bytes_of(rounds)
    for index, one in enumerate(rounds):
        each = {name: value for name, value in one.metrics.items() if value.dim() == 1 and one.cohort.size}
        for name, value in each.items():
            assert torch.equal(served.metrics[index][name], value), f"round {index + 1}: {name}"


def _one_at_a_time(name: str) -> Simulation:
    """A case's simulation, each client by itself as in a process of its own."""
    (case,) = [one for one in CASES if one.name == name]
    return case.simulation(chunk_size=1, sizes=SIZES)


@pytest.mark.thorough
def test_the_few_cases_exist_and_most_are_possible() -> None:
    possible = {case.name for case in CASES if _possible(case)}
    assert set(FEW) <= possible
    assert len(possible) >= 138


def test_a_peek_is_seen(clients: Pool, tmp_path: Path) -> None:
    _, models, _ = noninterference.record(_peeking(), Ledger())
    served = over_tcp(_peeking, clients, tmp_path)
    assert not torch.equal(served.models[-1]["test"].theta, models[-1]["test.theta"])


def _peeking() -> Simulation:
    honest = _one_at_a_time("fedavg-topk")
    options = [one.name for one in fields(honest.algorithm) if one.init]
    return replace(honest, algorithm=ServerPeeks(**{name: getattr(honest.algorithm, name) for name in options}))


def test_who_cannot_show_that_it_belongs_is_refused_and_the_right_one_comes_in() -> None:
    def another_key(address: Address) -> None:
        with pytest.raises(Gone, match="has another key: copy its key file"):
            ClientEnd(address, b"other", Hello(0, RUN))

    def a_stranger(address: Address) -> None:
        with socket.create_connection((address.host, address.port)) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(64))

    def foreign_words(address: Address) -> None:
        with Client((address.host, address.port), authkey=KEY) as connection:
            connection.send_bytes(b"w\x80\x04pickle")

    def nested_words(address: Address) -> None:
        with Client((address.host, address.port), authkey=KEY) as connection:
            connection.send_bytes(b"w" + b"[" * 100_000)

    refused = {another_key: "another key", a_stranger: "refused", foreign_words: "foreign", nested_words: "foreign"}
    for tell, line in refused.items():
        with gathering(1) as (end, said):
            tell(end.address)
            until(lambda said=said: bool(said))  # who comes next is greeted by another thread
            right = ClientEnd(end.address, KEY, Hello(0, RUN))
        assert line in said[0]
        right.close()
        end.close(end=True)


def test_what_no_client_may_send_is_named() -> None:
    end = ServerEnd(HERE, KEY)
    first, second = gathered(end, 0, 1)
    first.send(b"longer than it may be")
    with pytest.raises(Gone, match="client 0: a message is longer than any that it may send"):
        end.receive(0, 4)
    second.say(hello=1)
    with pytest.raises(Gone, match="client 1 stops: it does not say why"):
        end.receive(1, 4)
    end.close(stop="enough")
    with pytest.raises(Gone, match="stops: enough"):
        second.receive(100)


def test_a_client_that_is_late_or_gone_is_named() -> None:
    end = ServerEnd(HERE, KEY, patience=0.2)
    (client,) = gathered(end, 0)
    with pytest.raises(Gone, match=r"client 0 sent nothing for 0\.2 s"):
        end.receive(0, 10)
    client.close()
    with pytest.raises(Gone, match="client 0 is gone"):
        end.receive(0, 10)
    address = end.address
    end.close()
    with pytest.raises(Gone, match="there is no server at"):
        ClientEnd(address, KEY, Hello(0, RUN), wait=0)


def test_keys_and_addresses(tmp_path: Path) -> None:
    key = tmp_path / "key"
    with pytest.raises(ValueError, match="there is no key .*: fedcomp-serve makes one"):
        read_key(key, make=False)
    with pytest.raises(ValueError, match="is a folder: give a file"):
        read_key(tmp_path, make=True)
    assert read_key(key, make=True) == read_key(key, make=False)
    assert key.stat().st_mode & 0o777 == 0o600
    wrong = ["7000", "host:", "host:port", ":7000", "host:70000"]
    for text in [*wrong, "::1:7000", "[::1]", "[::1]:", "[]:7000", "[127.0.0.1]:7000"]:
        with pytest.raises(ValueError, match=r"give HOST:PORT, such as 127.0.0.1:7000 or \[::1\]:7000"):
            Address.of(text)


def test_a_client_may_start_before_the_server_has_made_the_key(tmp_path: Path) -> None:
    key, said = tmp_path / "key", list[str]()
    threading.Timer(0.2, read_key, (key, True)).start()
    assert await_key(key, PATIENCE, said.append) == read_key(key, make=False)
    assert said == [f"there is no key {key} yet: waiting 30 s for fedcomp-serve to make it"]
    assert await_key(key, PATIENCE, said.append) == read_key(key, make=False)
    assert len(said) == 1
    with pytest.raises(ValueError, match="there is no key .*none: fedcomp-serve makes one"):
        await_key(tmp_path / "none", 0.0, said.append)


def test_a_key_that_cannot_be_written_is_not_left_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "write_text", raising(OSError(28, "No space left on device")))
    with pytest.raises(ValueError, match="No space left on device"):
        read_key(tmp_path / "key", make=True)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_unpickled() -> None:
    text = "".join(path.read_text() for path in (Path(__file__).parents[2] / "fedcomp" / "remote").glob("*.py"))
    assert "_connection.send_bytes(" in text
    for call in (".recv()", "connection.send(", "pickle.", "import pickle"):
        assert call not in text, call


def test_what_processes_cannot_make_is_refused(capsys) -> None:
    from fedcomp.cli.serve import main

    for option in ("repeats=2", "chunk_size=4", "network=lte", "codec_error=true", "algorithm.weights=tokens"):
        assert main([option, "--key", "unused"]) == 2
        assert f"wire=tcp takes no {option.partition('=')[0]}" in capsys.readouterr().err
    for seconds in ("0", "-1", "inf", "nan"):
        assert main(["--key", "unused", "--listen", "nowhere", f"--patience={seconds}"]) == 2
        assert "--patience=" in capsys.readouterr().err


class Personal(FedAvg):
    personalised = True


def test_a_method_with_personal_models_is_not_sent_from_one_evaluation_to_the_other() -> None:
    parts = Sgd(lr=0.1, batch_size=4), ServerSgd(), Compressor(Dense()), Compressor(Dense())
    with pytest.raises(ValueError, match="^wire=tcp: algorithm=test_remote has a model for each client, .* simulate"):
        check_possible(world.simulation(Personal(*parts)))
