"""Local loops of small perceptrons in one launch: they end where plain ones do, and run only where they can."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from fedcomp.client.adam import Adam
from fedcomp.client.contract import LocalLoop
from fedcomp.client.sgd import Sgd
from fedcomp.model.batched.backward import mlp as mlp_backward
from fedcomp.simulation.cuda_graphs.fused_loop import FusedLoops
from tests.compressor.mrc.test_coder import NO_INTERPRETER
from tests.looped import looped
from tests.model.batched.backward import interpreted_mlp
from tests.model.batched.backward.interpreted_mlp import ALIKE, Other, chunk

no_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
PLAIN = Sgd(lr=0.1, batch_size=10)


@no_triton
@pytest.mark.thorough
@pytest.mark.skipif(NO_INTERPRETER, reason="Triton's interpreter before 3.8 does not loop with numpy 2.5")
def test_one_launch_ends_where_the_plain_loop_does() -> None:
    """Under Triton's interpreter, which must be chosen before triton is imported: a process of its own."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "tests.model.batched.backward.interpreted_mlp"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == list(interpreted_mlp.CASES)


@pytest.mark.slow
@no_triton
def test_the_kernel_compiles_for_a_gpu_and_spills_nothing() -> None:
    command = [sys.executable, "-m", "tests.model.batched.backward.compiled_mlp"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 3


@no_triton
@looped(
    "widths, solver, fuses",
    [
        ((64, 32, 10), PLAIN, True),
        ((65, 32, 10), PLAIN, False),
        ((64, 65, 10), PLAIN, False),
        ((64, 32, 17), PLAIN, False),
        ((64, 32, 10), Sgd(lr=0.1, batch_size=17), False),
        ((64, 32, 10), Sgd(lr=0.1, momentum=0.9), False),
        ((64, 32, 10), Sgd(lr=0.1, clip_norm=1.0), False),
        ((64, 32, 10), Adam(lr=0.1), False),
    ],
)
def test_what_runs_in_one_launch(widths, solver, fuses, trusting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where shape and solver allow it, on a GPU with Triton; every other loop reaches the other runner."""
    from fedcomp.model.batched.backward import mlp_triton

    reached = []

    def launch(samples, constants, places, steps):
        reached.append("fused")
        return steps.theta, steps.theta[:, 0]

    monkeypatch.setattr(mlp_triton, "train", launch)

    data = chunk(widths, True, ALIKE)
    theta, stats = data.model.init(interpreted_mlp.Key())
    rows = theta.expand(3, -1), stats.expand(3, -1)
    for there in (False, True):
        monkeypatch.setattr(mlp_backward, "has_triton", lambda device, there=there: there)
        for given in (None, lambda *_: None):  # a gradient hook
            FusedLoops(Other(reached)).run(LocalLoop(solver, data, *rows, 0.1, given))
        FusedLoops(Other(reached)).run(LocalLoop(solver, data, rows[0].double(), rows[1], 0.1))
    assert reached == ["other"] * 3 + (["fused"] if fuses else ["other"]) + ["other"] * 2
    assert torch.equal(rows[0], theta.expand(3, -1))
