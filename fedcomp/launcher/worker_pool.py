"""Runs in processes that workers fork: as `Children`, but only a worker's first run waits for imports."""

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

from fedcomp.launcher.contract import GridRun
from fedcomp.launcher.process import Children

_IDLE: "list[Worker]" = []
"""Workers that wait for a run: a search launches its runs in several batches."""


class Worker:
    """A process of `worker.py`, in a process group of its own. It ends when this process does."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            (sys.executable, "-m", "fedcomp.cli.worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            process_group=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout

    def ask(self, request: Mapping[str, object]) -> int | None:
        """Start a run; its process. None: the worker was killed."""
        with contextlib.suppress(BrokenPipeError):
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
        return self.answer()

    def answer(self) -> int | None:
        """The next number that it says; None: it was killed."""
        line = self._answers.readline()
        return int(line) if line else None

    def close(self) -> None:
        """End it, which is idle."""
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        self._answers.close()
        self._process.wait()


@dataclass(frozen=True)
class ForkedRun:
    """The process of a run, `number`, which a worker has forked; None: the worker was killed before."""

    worker: Worker
    number: int | None

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        if self.number is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.number, number)

    def wait(self) -> int:
        """Wait for its end; its exit code, minus the signal that killed it. A run whose worker is killed is killed."""
        code = None if self.number is None else self.worker.answer()
        if code is None:
            self.send_signal(signal.SIGKILL)
            self.worker.close()
            return -signal.SIGKILL
        _IDLE.append(self.worker)
        return code


class WorkerPool(Children):
    """Starts runs through workers, which are reused; signals and exit codes as of `Children`."""

    def _start(self, run: GridRun, log: IO[bytes], environment: Mapping[str, str]) -> ForkedRun:
        try:
            worker = _IDLE.pop()
        except IndexError:
            worker = Worker(environment)
        request = {
            "command": run.command,
            "folder": os.getcwd(),
            "log": str(run.log.absolute()),
            "environment": dict(environment),
        }
        return ForkedRun(worker, worker.ask(request))


@atexit.register
def close_idle() -> None:
    """End the workers that wait."""
    while _IDLE:
        _IDLE.pop().close()
