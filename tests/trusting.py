"""Accelerated forms without their proofs, for devices without values."""

from __future__ import annotations

import pytest

from fedcomp.core import accelerated
from fedcomp.core.accelerated import Verdicts


class Trusting(Verdicts):
    """Every form agrees, and nothing is computed."""

    def agrees(self, form, *_: object) -> bool:
        return form.name not in self.found


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accelerated forms are used without a proof."""
    monkeypatch.setattr(accelerated, "_current", Trusting())
