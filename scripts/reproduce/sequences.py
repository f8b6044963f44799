"""Sequences of commands: within one, what comes next follows from the runs before; several go side by side."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from itertools import chain

from scripts.reproduce.experiment import Command, Ended


def to_do(sequences: Iterable[Iterator[Command]]) -> list[Iterator[Command]]:
    """The sequences that have a command."""
    return [chain([first], one) for one in sequences if (first := next(one, None))]


def run_sequences(
    sequences: Sequence[Iterator[Command]], at_once: int, run: Callable[[Command, int], Ended], keep: Callable[[], None]
) -> Ended:
    """Run all commands; once one was stopped, no other begins.

    Args:
        at_once: runs that the device takes at once. As many sequences go side by side; where there are fewer, each has
            its share of the runs.
        run: runs a command, with so many of its runs at once.
        keep: keeps the records of what has run, from which the next command follows.

    Returns:
        The worst that became of a command.
    """
    left, lock, stopped = len(sequences), threading.Lock(), threading.Event()

    def go(sequence: Iterator[Command]) -> Ended:
        nonlocal left
        worst = Ended.FINISHED
        while not stopped.is_set():
            with lock:  # one at a time reads and writes records
                command = next(sequence, None)
                if command is None:
                    left -= 1
                    break
                share = max(1, at_once // left)
            worst = max(worst, run(command, share))
            with lock:
                keep()
            if worst is Ended.STOPPED:
                stopped.set()
        return worst

    if at_once == 1 or left == 1:  # in this thread, which Ctrl-C reaches
        return max(map(go, sequences))
    with ThreadPoolExecutor(at_once) as pool:
        found = [pool.submit(go, one) for one in sequences]
        try:
            wait(found, return_when=FIRST_EXCEPTION)
        finally:
            stopped.set()  # what runs has had the signal too, and ends with its state
    return max(one.result() for one in found)
