"""Plants the faults of `faults.yaml` one after another in a copy of the project, and says which of them no test finds.

python -m tests.faults.plant [FILE ...]: all faults, or those of some files of fedcomp/.

The tests of a fault run in a process forked from this one, which has imported torch: a fault costs its tests, and
fedcomp's import.
"""

import functools
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("fedcomp", "hydra_plugins", "conf", "tests", "docs", "scripts", "pyproject.toml", "README.md", "CHANGELOG.md")
SECONDS = 1800
"""A process that takes longer is killed: a fault that makes a test wait for ever is not found by it."""
FOUND = 1
"""pytest's exit status when tests fail. Another one says that the tests do not run at all."""
EXTRAS = {"hf": ("transformers", "peft")}
"""What the tests of a fault may need beside the project and its tools, and the libraries that belong to it."""


@dataclass(frozen=True)
class Fault:
    """In `file` of fedcomp/, `was` becomes `now`; one of `tests` must fail, which need one of `EXTRAS`, or nothing."""

    file: str
    was: str
    now: str
    tests: tuple[str, ...]
    needs: str | None = None

    @property
    def missing(self) -> list[str]:
        """Libraries that its tests need and that are not installed: without them they would be skipped."""
        return [] if self.needs is None else [name for name in EXTRAS[self.needs] if find_spec(name) is None]

    def __str__(self) -> str:
        return f"{self.file}: {' '.join(self.was.split())} -> {' '.join(self.now.split()) or '(nothing)'}"


def faults() -> list[Fault]:
    """All faults of the table."""
    rows = yaml.safe_load(Path(__file__).with_name("faults.yaml").read_text())
    return [Fault(row["file"], row["was"], row["is"], tuple(row["found by"].split()), row.get("needs")) for row in rows]


def plantable(chosen: Sequence[Fault], note: Callable[[str], object] = lambda _: None) -> list[Fault]:
    """Those of the faults whose tests can run here; of each other one a line to `note`."""
    for fault in chosen:
        if fault.missing:
            note(f"skipped, without {' and '.join(fault.missing)}: {fault}")
    return [fault for fault in chosen if not fault.missing]


def not_found(planted: Sequence[Fault], note: Callable[[str], object] = lambda _: None) -> list[str]:
    """The faults that their tests do not find, a line each with the end of what pytest printed."""
    import hydra  # so that no forked process imports them
    import omegaconf
    import torch.func

    del hydra, omegaconf
    torch.set_num_threads(1)
    waiting, running, missed = list(planted), {}, []
    with tempfile.TemporaryDirectory() as folder:
        places = [_copy(Path(folder) / str(number)) for number in range(min(8, len(os.sched_getaffinity(0))))]
        while waiting or running:
            while waiting and places:
                fault, place = waiting.pop(0), places.pop()
                running[_start(fault, place)] = fault, place
            child, status = os.wait()
            fault, place = running.pop(child)
            exit_status = os.waitstatus_to_exitcode(status)
            note(f"{'found' if exit_status == FOUND else f'NOT FOUND (status {exit_status})'}: {fault}")
            if exit_status != FOUND:
                shown = _log(place).read_text()[-1500:]
                missed.append(f"{fault} is not found by {' '.join(fault.tests)}, status {exit_status}:\n{shown}")
            shutil.copy2(ROOT / "fedcomp" / fault.file, place / "fedcomp" / fault.file)
            places.append(place)
    return missed


def _copy(place: Path) -> Path:
    place.mkdir()
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, place / name)
    return place


def _log(place: Path) -> Path:
    return place / "planted.log"


def _start(fault: Fault, place: Path) -> int:
    """A process with the tests of a fault; returns its number."""
    source = place / "fedcomp" / fault.file
    text = source.read_text()
    if text.count(fault.was) != 1:
        raise ValueError(f"{fault}: stands {text.count(fault.was)} times in the file, but must stand there once")
    source.write_text(text.replace(fault.was, fault.now))
    child = os.fork()
    if child:
        return child
    try:
        os._exit(_run(fault, place))
    except BaseException:
        traceback.print_exc()
        os._exit(70)


def _run(fault: Fault, place: Path) -> int:
    """In the forked process: forget this project, and run the tests of the other."""
    import pytest

    signal.alarm(SECONDS)
    with _log(place).open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    for name in [name for name in sys.modules if name.split(".")[0] in ("fedcomp", "hydra_plugins", "tests")]:
        del sys.modules[name]
    os.chdir(place)
    sys.path[:] = [str(place), *(path for path in sys.path if path not in ("", str(ROOT)))]
    os.environ |= {"PYTHONPATH": str(place), "NUMBA_CACHE_DIR": str(place / "numba")}
    options = ("-n", "0", "-x", "-q", "-p", "no:cacheprovider", f"--basetemp={place / 'tmp'}")
    return int(pytest.main([*options, *(f"tests/{test}" for test in fault.tests)]))


if __name__ == "__main__":
    chosen = [fault for fault in faults() if not sys.argv[1:] or fault.file in sys.argv[1:]]
    note = functools.partial(print, flush=True)
    planted = plantable(chosen, note)
    missed = not_found(planted, note)
    print(*missed, f"{len(planted) - len(missed)} of {len(planted)} faults are found", sep="\n")
    raise SystemExit(bool(missed))
