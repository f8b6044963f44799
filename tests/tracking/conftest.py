"""Real runs with W&B."""

import pytest


@pytest.fixture
def without_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that says nothing about W&B."""
    for name in ("MODE", "API_KEY", "PROJECT", "ENTITY", "BASE_URL", "DIR", "RUN_ID", "RESUME", "NAME", "SWEEP_ID"):
        monkeypatch.delenv(f"WANDB_{name}", raising=False)
