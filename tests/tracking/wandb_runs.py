"""Fixtures for real runs with W&B: no account in the environment, no pictures, a power cut at will."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from fedcomp.simulation.loop import Simulation


@pytest.fixture
def without_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that says nothing about W&B."""
    for name in ("MODE", "API_KEY", "PROJECT", "ENTITY", "BASE_URL", "DIR", "RUN_ID", "RESUME", "NAME"):
        monkeypatch.delenv(f"WANDB_{name}", raising=False)


@pytest.fixture
def undrawn(fedcomp: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The command line without the two pictures, which take most of a short run's time."""
    monkeypatch.setattr("fedcomp.session.plot_curve", lambda *_: None)
    monkeypatch.setattr("fedcomp.train.plot_partition", lambda *_: None)
    return fedcomp


@contextlib.contextmanager
def before_round(wanted: int, happens: Callable[[], object]) -> Iterator[None]:
    """Do something right before round `wanted` of the run inside."""
    whole = Simulation.round

    def round(self, index, state, ledger):
        if index + 1 == wanted:
            happens()
        return whole(self, index, state, ledger)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simulation, "round", round)
        yield


@contextlib.contextmanager
def power_cut(wanted: int) -> Iterator[None]:
    """The run inside dies before round `wanted`."""

    def cut() -> None:
        raise RuntimeError("power cut")

    with before_round(wanted, cut), pytest.raises(RuntimeError, match="power cut"):
        yield
