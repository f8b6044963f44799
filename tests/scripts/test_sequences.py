"""Commands of `make reproduce` side by side: who waits for whom, and what a stop ends."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from scripts.reproduce.experiment import Command, Ended
from scripts.reproduce.records import Records
from scripts.reproduce.same_bits import SEARCHES
from scripts.reproduce.seconds import RUNS
from scripts.reproduce.sequences import run_sequences, to_do

SECONDS = 60.0


def test_sequences_go_side_by_side_and_who_is_left_has_all_places() -> None:
    """A command follows from the records of the one before in its sequence; the shares are of eight places."""
    kept: list[str] = []
    ran: list[str] = []
    shares: dict[str, int] = {}
    meet, first_is_over = threading.Barrier(2), threading.Event()

    def sequence(name: str, number: int) -> Iterator[Command]:
        for index in range(number):
            assert kept.count(f"{name}{index - 1}") == (index > 0)
            yield [f"{name}{index}"]
        if name == "a":
            first_is_over.set()

    def run(command: Command, share: int) -> Ended:
        (word,) = command
        shares[word] = share
        if word.endswith("0"):
            meet.wait(SECONDS)
        if word == "b1":
            assert first_is_over.wait(SECONDS)
        ran.append(word)
        return Ended.FAILED if word == "b0" else Ended.FINISHED

    ready = to_do([sequence("a", 1), iter([]), sequence("b", 3)])
    assert run_sequences(ready, 8, run, lambda: kept.extend(set(ran) - set(kept))) is Ended.FAILED
    assert [shares[word] for word in ("a0", "b0", "b2")] == [4, 4, 8]
    assert kept.count("b2") == 1


@pytest.mark.parametrize("at_once", [1, 2])
def test_after_a_stop_no_command_begins(at_once: int) -> None:
    ran: list[Command] = []
    meet = threading.Barrier(at_once)

    def run(command: Command, share: int) -> Ended:
        ran.append(command)
        meet.wait(SECONDS)
        return Ended.STOPPED

    sequences = [iter([[f"{name}{index}"] for index in range(3)]) for name in "abc"]
    assert run_sequences(sequences, at_once, run, lambda: None) is Ended.STOPPED
    assert sorted(ran) == [["a0"], ["b0"]][:at_once]


def test_an_error_ends_all() -> None:
    began = threading.Event()

    def run(command: Command, share: int) -> Ended:
        if command == ["a"]:
            assert began.wait(SECONDS)
            raise OSError("no room")
        began.set()
        return Ended.FINISHED

    endless = iter(lambda: ["b"], None)
    with pytest.raises(OSError, match="no room"):
        run_sequences([endless, iter([["a"]])], 2, run, lambda: None)


def test_what_waits_for_nothing_is_a_sequence() -> None:
    """Of a search a method's trials and runs are one; runs that are only timed wait for nothing."""
    search = replace(SEARCHES[0], records=lambda _: Records())
    assert len(search.sequences("paper")) == len(search.rows)
    assert search.sequences("small") == []
    assert [list(one) for one in RUNS.sequences("paper")] == [[one] for one in RUNS.overrides("paper")]
