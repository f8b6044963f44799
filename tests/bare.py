"""What a test sees of the machine: what a fresh one has, whatever is installed here.

PATH has the programs of `PROGRAMS` and no others, HOME is an empty folder, and no variable speaks of fedcomp, Slurm,
W&B or CUDA. What takes seconds to find is kept in the user's cache: numba's kernels and matplotlib's list of fonts.

A test marked `slow`, `gpu`, `slurm`, `data` or `program` sees the machine as it is. `data("insurance.csv")` needs this
file in the data folder, `program("fish")` this program (of several: one of them); where it is missing they are skipped.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedcomp.core.folders import cache_folder

PROGRAMS = """
sh bash env git make python3 cat chmod cp cut date dirname basename echo expr false find grep gzip head hostname id kill
ln ls mkdir mktemp mv nice nproc ps printf pwd readlink realpath rm rmdir sed seq sleep sort stat tail tar tee test
timeout touch tr true uname uniq wc xargs
"""
MACHINE = ("slow", "gpu", "slurm", "data", "program")
"""Marks of tests that see the machine as it is."""
REMOVED = ("FEDCOMP_", "SLURM_", "WANDB_", "XDG_", "CUDA_")
DATA = Path(os.environ.get("FEDCOMP_DATA", "~/.cache/fedcomp")).expanduser()
"""Where the tests marked `data` find theirs."""
_AS_IT_IS, _HOME = pytest.StashKey[dict[str, str]](), pytest.StashKey[Path]()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Take away what a fresh machine lacks, before any test is imported."""
    config = session.config
    if config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        return  # this process runs no test, and its workers have to see the machine
    room = tempfile.TemporaryDirectory(prefix="fedcomp-tests-")
    config.add_cleanup(room.cleanup)
    programs, home = Path(room.name) / "bin", Path(room.name) / "home"
    programs.mkdir()
    home.mkdir()
    for name in PROGRAMS.split():
        if found := shutil.which(name):
            (programs / name).symlink_to(found)
    config.stash[_AS_IT_IS], config.stash[_HOME] = dict(os.environ), home
    cache = cache_folder()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(REMOVED)}
    if "CUDA_VISIBLE_DEVICES" in os.environ:  # which GPUs are ours; tests/conftest.py hides them
        kept["CUDA_VISIBLE_DEVICES"] = os.environ["CUDA_VISIBLE_DEVICES"]
    kept.setdefault("NUMBA_CACHE_DIR", str(cache))
    kept.setdefault("MPLCONFIGDIR", str(cache.parent / "matplotlib"))
    _set(kept | {"PATH": str(programs), "HOME": str(home)})


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """With its fixtures, of whatever scope: these are set up by the first test that asks for them."""
    if any(item.get_closest_marker(name) for name in MACHINE):
        with _environment(item.config.stash[_AS_IT_IS]):
            return (yield)
    result = yield
    for path in item.config.stash[_HOME].iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what cannot be had here."""
    for mark in item.iter_markers("data"):
        for name in mark.args:
            if not (DATA / name).exists():
                pytest.skip(f"no {name} in {DATA}; see Data in docs/testing.md")
    for mark in item.iter_markers("program"):
        if not any(map(shutil.which, mark.args)):
            pytest.skip(f"no {' or '.join(mark.args)} here")


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    _set(wanted)
    try:
        yield
    finally:
        _set(before)


def _set(wanted: Mapping[str, str]) -> None:
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)
