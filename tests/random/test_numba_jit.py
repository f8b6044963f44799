"""Where compiled code is kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
FOLDER = """
import sys
from pathlib import Path
from fedcomp.random import numba_jit
numba_jit.cache_folder = lambda: Path("cache") / numba_jit.sources_digest(Path("."))
import whole_numba
"""


def test_a_change_of_what_is_inlined_compiles_again(tmp_path: Path) -> None:
    """numba itself would go on with the old part: it compares the file of the caller alone."""
    (tmp_path / "whole_numba.py").write_text(WHOLE)
    for added in (1, 1, 5):
        (tmp_path / "parts_numba.py").write_text(PARTS.format(added))
        done = subprocess.run(
            [sys.executable, "-B", "-c", FOLDER], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert done.stdout.strip() == str(1 + added), done.stderr
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_every_source_counts(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "one_numba.py").write_text("1")
    before = sources_digest(tmp_path)
    assert sources_digest(tmp_path) == before
    (tmp_path / "deep" / "one_numba.py").write_text("2")
    assert sources_digest(tmp_path) != before
