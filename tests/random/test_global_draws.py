"""Draws that no key names are found, and those of a key are none of them."""

import random
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fedcomp.core.cohort import Cohort
from fedcomp.random import global_draws
from fedcomp.random.global_draws import no_global_draws
from fedcomp.random.keys import Key
from fedcomp.simulation.async_metrics import MetricsReader
from tests.conformance import world
from tests.looped import looped
from tests.parts import Uniform
from tests.refused import one_line_error
from tests.training.sessions import fedavg, session_in


@looped(
    "draw, whose",
    [
        (lambda: torch.rand(2), "torch"),
        (lambda: np.random.rand(2), "NumPy"),  # noqa: NPY002
        (lambda: random.random(), "Python"),
    ],
)
def test_a_draw_from_a_global_generator_is_refused(draw, whose: str) -> None:
    with (
        one_line_error(f"^this part draws from {whose}'s global generator.* generator=key.generator"),
        no_global_draws("this part"),
    ):
        draw()


def test_draws_of_a_key_are_none() -> None:
    with no_global_draws("this part"):
        torch.rand(2, generator=Key().generator())
        np.random.default_rng(Key().seed).random(2)


def test_a_library_that_imports_rich_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first import draws, and may stand in a load or a model of one's own, as scikit-learn's does."""
    monkeypatch.delitem(sys.modules, "rich.style", raising=False)
    noted_draws = runpy.run_path(global_draws.__file__)["noted_draws"]
    with noted_draws() as drawn:
        import rich.style  # noqa: F401
    assert not drawn


class Later(Uniform):
    """Nobody takes part in the first round."""

    def sample(self, key, importance, round_index=0):
        drawn = super().sample(key, importance, round_index)
        return drawn if round_index else Cohort.of((), torch.zeros(0))


def test_a_round_that_draws_so_ends_a_run(tmp_path: Path) -> None:
    """The first one with clients, since a round without them does nothing; of torch's any later one."""
    draws = {"NumPy": (2, lambda: np.random.rand()), "torch": (3, lambda: torch.rand(1))}  # noqa: NPY002
    for whose, (at, draw) in draws.items():
        sim = world.simulation(fedavg(), world.with_batch_norm, rounds=3, participation=Later(3))

        def before(index, at=at, draw=draw) -> None:
            if index == at:
                draw()

        session = session_in(tmp_path / whose, MetricsReader(), sim, before=before)
        with one_line_error(f"^this run's round draws from {whose}'s global generator"):
            session.run()
