"""Real runs with W&B: no account in the environment, and none of the pictures that take most of the time."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def without_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that says nothing about W&B."""
    for name in ("MODE", "API_KEY", "PROJECT", "ENTITY", "BASE_URL", "DIR", "RUN_ID", "RESUME", "NAME"):
        monkeypatch.delenv(f"WANDB_{name}", raising=False)


@pytest.fixture
def undrawn(fedcomp: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The command line without the two pictures, which take most of a short run's time."""
    monkeypatch.setattr("fedcomp.run.session.plot_curve", lambda *_: None)
    monkeypatch.setattr("fedcomp.run.train.plot_partition", lambda *_: None)
    return fedcomp
