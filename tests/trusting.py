"""Accelerated forms without their proofs, for devices without values."""

import pytest

from fedcomp.core import accelerated
from fedcomp.core.accelerated import Form, Verdicts


def trust(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on every form agrees, and nothing is computed."""
    monkeypatch.setattr(accelerated, "_current", Verdicts())
    monkeypatch.setattr(Form, "agrees", lambda form, *_, **__: not form.refused)


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accelerated forms are used without a proof."""
    trust(monkeypatch)
