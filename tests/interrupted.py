"""Real runs to which something happens: right before a round, or when the line of a round is written."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from fedcomp.simulation.simulation import Simulation
from fedcomp.tracking.contract import Jsonl
from tests.raising import raising


@contextlib.contextmanager
def before_round(wanted: int, happens: Callable[[], object], engine: type = Simulation) -> Iterator[None]:
    """Do something right before round `wanted` of the run inside; a study's `engine` is MonteCarloStudy."""
    whole = engine.round

    def round(self, index, *rest, **more):
        if index + 1 == wanted:
            happens()
        return whole(self, index, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "round", round)
        yield


@contextlib.contextmanager
def at_line(wanted: int, happens: Callable[[], object]) -> Iterator[None]:
    """Do something when the line of round `wanted` of the run inside is written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Jsonl, "log", lambda self, line: happens() if line["round"] == wanted else None)
        yield


@contextlib.contextmanager
def stopped_after(done: int) -> Iterator[None]:
    """The run inside gets a Ctrl-C once the line of round `done` is written."""
    with at_line(done, raising(KeyboardInterrupt())):
        yield


@contextlib.contextmanager
def power_cut(wanted: int) -> Iterator[None]:
    """The run inside dies before round `wanted`; the command line may say so in a line, or let the error through."""
    died = []

    def cut() -> None:
        died.append(wanted)
        raise RuntimeError("power cut")

    with before_round(wanted, cut), contextlib.suppress(RuntimeError):
        yield
    assert died == [wanted]
