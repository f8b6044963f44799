"""Where compiled code is kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedcomp.random.numba_jit import sources_digest

PARTS = "from fedcomp.random.numba_jit import inlined\n@inlined\ndef part(x):\n    return x + {}\n"
WHOLE = """
from fedcomp.random.numba_jit import compiled
from parts_numba import part

@compiled
def whole(x):
    return part(x)

print(whole(1))
"""
APART = """
import logging
from numba import types
from fedcomp.random.numba_jit import compiled, separate

logging.basicConfig(level=logging.INFO, format="%(message)s")

@compiled
def part(x, y):
    return x.sum() + y

part_apart = separate(types.float32[::1], types.float32)(part)

@compiled
def whole(x):
    return part_apart(x[1:], x.size) + part_apart(x, 2)
"""
CALLER = """
import numpy as np
import apart_numba
print(apart_numba.whole(np.ones(3, np.float32)), len(apart_numba.whole.stats.cache_hits))
"""
FOLDER = """
import sys
from pathlib import Path
from fedcomp.random import numba_jit
numba_jit.cache_folder = lambda: Path("cache") / numba_jit.sources_digest(Path("."))
import whole_numba
"""


def _start(script: str, folder: Path) -> subprocess.Popen[str]:
    """A process that runs the script among the folder's modules, and compiles into it."""
    command, environment = [sys.executable, "-B", "-c", script], os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache")}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True, env=environment)


@pytest.mark.thorough
def test_a_change_of_what_is_inlined_compiles_again(tmp_path: Path) -> None:
    """numba itself would go on with the old part: it compares the file of the caller alone."""
    (tmp_path / "whole_numba.py").write_text(WHOLE)
    for added in (1, 1, 5):
        (tmp_path / "parts_numba.py").write_text(PARTS.format(added))
        printed, said = _start(FOLDER, tmp_path).communicate(timeout=120)
        assert printed.strip() == str(1 + added), said
    assert len(list((tmp_path / "cache").iterdir())) == 2


@pytest.mark.thorough
def test_a_function_apart_is_called_and_compiling_is_said_once(tmp_path: Path) -> None:
    """One of two processes compiles; the other, and a later one, load both functions, and say nothing."""
    (tmp_path / "apart_numba.py").write_text(APART)
    together = [_start(CALLER, tmp_path) for _ in range(2)]
    ended = [process.communicate(timeout=120) for process in together]
    ended = [*sorted(ended), _start(CALLER, tmp_path).communicate(timeout=120)]
    for hits, (printed, said) in zip((0, 1, 1), ended, strict=True):
        assert printed.split() == ["10.0", str(hits)], said
        assert said.count("compiling kernels") == 1 - hits


def test_every_source_counts(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "one_numba.py").write_text("1")
    before = sources_digest(tmp_path)
    assert sources_digest(tmp_path) == before
    (tmp_path / "deep" / "one_numba.py").write_text("2")
    assert sources_digest(tmp_path) != before
