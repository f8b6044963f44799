"""A process that starts the runs of a grid, one after another, without the seconds that importing torch takes.

It imports what runs import, and forks itself for each. So a run is still a process of its own, with its own memory,
signals, threads, caches and log, and what kills it leaves the others alone. The worker itself computes nothing: every
run begins from the same untouched state, as in `python -m fedcomp`, and has the same bits.

It reads a run from standard input, one line of JSON, and answers with two lines: its process, its exit code.
"""

import atexit
import contextlib
import importlib
import json
import os
import signal
import sys
from typing import Any

from fedcomp.runtime.importing import without_collection
from fedcomp.runtime.signals import SIGNALS

PACKAGES = {"PIL", "antlr4", "fedcomp", "hydra", "matplotlib", "numba", "numpy", "omegaconf", "scipy", "torch"}
IMPORTED_ONCE = PACKAGES | sys.stdlib_module_names
"""Whose modules the worker imports once a run has needed them; the user's own code is read by each run."""


def main() -> None:
    """Serve until standard input ends. Returns from a forked process only when its run has ended."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # they are for the runs; before any thread begins
    with without_collection():
        importlib.import_module("fedcomp.cli.main")
        importlib.import_module("fedcomp.training.run")
    for line in sys.stdin:
        request = json.loads(line)
        needed, says = os.pipe()
        process = os.fork()
        if not process:
            atexit.register(_say_imported, says)
            _become(request)
            return
        os.close(says)
        _answer(process)
        with open(needed) as names:
            modules = names.read().split()  # ends with the run
        _answer(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
        for name in modules:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)


def _become(request: dict[str, Any]) -> None:
    """Go on as the process of a run: its folder, environment, streams and signals, then its command."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for stream, path, how in ((0, os.devnull, os.O_RDONLY), (1, request["log"], os.O_WRONLY | os.O_APPEND)):
        file = os.open(path, how)
        os.dup2(file, stream)
        os.close(file)
    os.dup2(1, 2)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # those that came since the fork are heard now
    python, *arguments = request["command"]
    if arguments[:2] != ["-m", "fedcomp"]:
        os.execv(python, [python, *arguments])
    from fedcomp.cli.entry_points import fedcomp

    sys.path[0], sys.argv = os.getcwd(), ["fedcomp", *arguments[2:]]
    fedcomp()


def _say_imported(pipe: int) -> None:
    """Tell the worker which modules this run has imported."""
    names = [name for name in sys.modules if name.partition(".")[0] in IMPORTED_ONCE]
    os.write(pipe, " ".join(names).encode())


def _answer(number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the grid's own process was killed
        os.write(1, f"{number}\n".encode())


if __name__ == "__main__":
    main()
