"""Real runs to which something happens right before a round."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from fedcomp.simulation.simulation import Simulation


@contextlib.contextmanager
def before_round(wanted: int, happens: Callable[[], object]) -> Iterator[None]:
    """Do something right before round `wanted` of the run inside."""
    whole = Simulation.round

    def round(self, index, state, ledger, donate_state=False):
        if index + 1 == wanted:
            happens()
        return whole(self, index, state, ledger)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simulation, "round", round)
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
