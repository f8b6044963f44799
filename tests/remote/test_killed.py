"""Real processes on this machine, killed at either end: the run ends as the simulation does.

It goes on without a client that is killed, which comes back; a killed server goes on when all are started again.
"""

import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fedcomp.cli import join, serve
from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from fedcomp.participation.absent import read_absent
from fedcomp.records.metrics_file import read_lines
from fedcomp.remote import run_number
from fedcomp.remote.kept import ABSENT, KEPT
from fedcomp.wire import Ledger
from tests.docs.pages import ROOT
from tests.forked import Forked

CLIENTS, ROUNDS = 3, 200
RUN = (f"num_clients={CLIENTS}", f"rounds={ROUNDS}", "eval_every=10", "checkpoint_every=4")
METHOD = ("compressor=topk", "compressor.feedback=error")
PART = ("participation=uniform", "participation.num_participants=2")
OPTIONS = (*RUN, *METHOD, *PART, "pictures=false", "threads=1")
SECONDS = 240.0


class _Run:
    """The processes of a run in a folder: the server, and the clients."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder, self.all, self.said = folder, list[Forked](), list[Path]()
        self._where = [*OPTIONS, f"output_root={folder}", "--key", str(folder / "key")]

    def start(self) -> None:
        """The server and all clients."""
        self.all = [self._process(serve.main, "--listen", f"127.0.0.1:{self.port}")]
        _until(lambda: (self.folder / "key").exists(), self.all[0])
        self.all += [self.client(number) for number in range(CLIENTS)]

    def client(self, number: int) -> Forked:
        return self._process(join.main, "--client", str(number), "--server", f"127.0.0.1:{self.port}")

    def _process(self, main: Callable[[list[str]], int], *words: str) -> Forked:
        self.said.append(self.folder / f"said-{len(self.said)}")
        return Forked(lambda: sys.exit(main([*self._where, *words])), ["fedcomp"], ROOT, self.said[-1])

    def wait_for_round(self, number: int) -> None:
        """Until so many rounds are evaluated."""
        _until(lambda: any(_lines(path) > number // 10 for path in self.folder.rglob("metrics.jsonl")), self.all[0])

    def connections(self) -> int:
        """How many clients are connected, or wait to be accepted."""
        rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(row[1].endswith(f":{self.port:04X}") and row[3] == "01" for row in rows)


def _lines(path: Path) -> int:
    return path.read_text().count("\n")


def _until(true: Callable[[], bool], alive: Forked) -> None:
    until = time.monotonic() + SECONDS
    while not true():
        assert alive.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.thorough
def test_clients_and_the_server_are_killed_and_go_on(tmp_path: Path) -> None:
    run = _Run(tmp_path)
    run.start()
    run.wait_for_round(10)
    server, lost = run.all[0], run.all[2]
    lost.send_signal(signal.SIGKILL)
    assert lost.wait() == -signal.SIGKILL
    run.wait_for_round(40)
    server.send_signal(signal.SIGSTOP)  # so that the run does not end before the client is back
    run.all[2] = run.client(1)
    _until(lambda: run.connections() == CLIENTS, run.all[2])
    server.send_signal(signal.SIGCONT)
    run.wait_for_round(60)
    numbers = {path.parent.name: path.read_text() for path in tmp_path.rglob(run_number.FILE)}
    assert len(numbers) == CLIENTS + 1
    assert len(set(numbers.values())) == 1
    for number in (signal.SIGKILL, signal.SIGTERM):
        run.all[0].send_signal(number)
        assert 0 not in [process.wait(SECONDS) for process in run.all]
        run.start()
        run.wait_for_round(80)
    assert [process.wait(SECONDS) for process in run.all] == [0] * (CLIENTS + 1)

    assert {path.parent.name: path.read_text() for path in tmp_path.rglob(run_number.FILE)} == numbers
    (record,) = tmp_path.rglob("metrics.jsonl")
    absent = read_absent(record.parent / ABSENT)
    assert not (record.parent / KEPT).exists()  # the run has ended
    assert 10 <= len(absent) < 150
    assert set(absent.values()) == {(1,)}
    assert any("the run goes on without it" in said.read_text() for said in run.said)
    again = [word for word in OPTIONS if not word.startswith("participation")]
    again += ["participation=absent", f"participation.path={record.parent / ABSENT}", "chunk_size=1"]
    again += ["participation@participation.drawn=uniform", "participation.drawn.num_participants=2"]
    alone, _ = build_simulation(compose(again), torch.device("cpu"))
    state, ledger, result = alone.init(), Ledger(), None
    for index, line in enumerate(read_lines(record)):
        for number in range(10 * index - 10, 10 * index) if index else ():
            state, result = alone.round(number, state, ledger)
        wanted = alone.evaluate(10 * index, state, result).line | alone.bits_metrics(ledger)
        for name, value in wanted.items():
            assert line[name] == float(value), f"round {line['round']}: {name}"
    assert {"train/loss", "update/norm", "memory/norm", "bits/uplink"} <= wanted.keys()
