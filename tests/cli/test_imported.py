"""What a command does not need, it does not import: torch takes two seconds, matplotlib half a second."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedcomp.core.choices import choices

RUN = """
import sys
from fedcomp.cli.entry_points import fedcomp
try:
    fedcomp()
finally:
    print(*{name.partition(".")[0] for name in sys.modules})
"""
ALWAYS = {"IPython", "pandas", "plotly", "sklearn", "wandb"}
TRAINING = {"matplotlib", "numba", "torchvision", "triton"}
"""What training needs in some cases: pictures, long draws and compiled models, photographs, GPUs."""


def _imported(tmp_path: Path, *arguments: str) -> set[str]:
    """The packages that a command imports in a process of its own."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", RUN, *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.thorough
def test_a_run_imports_what_it_needs(tmp_path: Path) -> None:
    first = _imported(tmp_path, "rounds=1", "pictures=false")
    assert "torch" in first
    assert not first & (ALWAYS | TRAINING - {"numba"})  # which compiles perceptrons


def test_what_runs_nothing_needs_no_torch(fedcomp: Callable[..., int], tmp_path: Path) -> None:
    done = ("rounds=1", "pictures=false", f"output_root={tmp_path}")
    assert fedcomp(*done) == 0
    assert not _imported(tmp_path, *done) & (ALWAYS | TRAINING | {"torch", "numpy"})
    assert not _imported(tmp_path, *done, "launcher=joblib") & {"torch", "numpy"}
    assert not _imported(tmp_path, "--help", "compressor") & {"torch", "numpy", "matplotlib"}


def test_no_data_set_needs_torch_to_name_its_files() -> None:
    """A finished run's data are compared with what they were, before torch is imported."""
    targets = sorted({str(choice["_target_"]) for choice in choices("dataset").values()})
    lines = [f"import sys\nfrom {target.rpartition('.')[0]} import data_files" for target in targets]
    code = "\n".join([*lines, "print('torch' in sys.modules)"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
