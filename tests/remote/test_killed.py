"""Real processes on this machine: killed at either end and started again, a run ends as the simulation does."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedcomp.records.metrics_file import read_lines
from tests.docs.pages import ROOT

OPTIONS = (
    "num_clients=3",
    "rounds=60",
    "eval_every=10",
    "checkpoint_every=4",
    "compressor=topk",
    "compressor.feedback=error",
    "participation=uniform",
    "participation.num_participants=2",
    "pictures=false",
    "threads=1",
)


class _Run:
    """The processes of a run in a folder."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.folder, self.all = folder, list[subprocess.Popen]()

    def start(self) -> None:
        where = [*OPTIONS, f"output_root={self.folder}", "--key", str(self.folder / "key")]
        self.all = [self._process("serve", [*where, "--listen", self.address])]
        while not (self.folder / "key").exists():
            assert self.all[0].poll() is None
            time.sleep(0.1)
        for client in range(3):
            self.all.append(self._process("join", [*where, "--client", str(client), "--server", self.address]))

    def _process(self, name: str, words: list[str]) -> subprocess.Popen:
        code = f"import sys; from fedcomp.cli.{name} import main; sys.exit(main(sys.argv[1:]))"
        return subprocess.Popen([sys.executable, "-c", code, *words], cwd=ROOT, stderr=subprocess.DEVNULL)

    def kill_when(self, which: int, number: int, round_: int) -> None:
        """Send a signal to one process once so many rounds are evaluated; the others then end by themselves."""
        until = time.monotonic() + 120
        while time.monotonic() < until:
            (record,) = [*self.folder.rglob("metrics.jsonl")] or [None]
            if record is not None and record.read_text().count("\n") > round_ // 10:
                break
            assert self.all[which].poll() is None
            time.sleep(0.02)
        os.kill(self.all[which].pid, number)
        self.wait()

    def wait(self) -> list[int]:
        return [process.wait(timeout=120) for process in self.all]


@pytest.mark.thorough
def test_both_ends_are_killed_and_go_on(fedcomp, tmp_path: Path) -> None:
    run = _Run(tmp_path / "real")
    run.folder.mkdir()
    for which, number, round_ in ((0, signal.SIGKILL, 10), (2, signal.SIGKILL, 20), (0, signal.SIGTERM, 30)):
        run.start()
        run.kill_when(which, number, round_)
    run.start()
    assert run.wait() == [0, 0, 0, 0]
    assert fedcomp(*OPTIONS, "chunk_size=1", "wire=packed", f"output_root={tmp_path / 'one'}") == 0
    (found,), (wanted,) = ([*(tmp_path / name).rglob("metrics.jsonl")] for name in ("real", "one"))
    clients = {"train/loss", "update/norm", "memory/norm"}
    for line, other in zip(read_lines(found), read_lines(wanted), strict=True):
        kept = {name: value for name, value in other.items() if name != "seconds"}
        assert {name: line[name] for name in kept} == kept, f"round {line['round']}"
    assert clients <= kept.keys()
