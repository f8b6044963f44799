"""Draws that no key names are found, and those of a key are none of them."""

from pathlib import Path

import numpy as np
import torch

from fedcomp.random.global_draws import no_global_draws
from fedcomp.random.keys import Key
from fedcomp.simulation.async_metrics import MetricsReader
from tests.looped import looped
from tests.refused import one_line_error
from tests.training.sessions import session_in


@looped("draw, whose", [(lambda: torch.rand(2), "torch"), (lambda: np.random.rand(2), "NumPy")])  # noqa: NPY002
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


def test_a_round_that_draws_so_ends_a_run(tmp_path: Path) -> None:
    session = session_in(tmp_path, MetricsReader(), before=lambda index: torch.rand(1))
    with one_line_error("^this run's round draws from torch's global generator"):
        session.run()
