"""What `.ci/run` runs, with stand-ins for make and for the Pythons that are found."""

import os
import shutil
import subprocess
from itertools import islice
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parents[1] / ".ci" / "run"
BEFORE = [{"setup"}, {"docs", "check"}, {"test"}, {"thorough on avx2"}]
ALONE = [*BEFORE, {"processors CAPABILITIES=default"}, {"hf"}]

if not RUN.exists():
    pytest.skip(".ci/run is only in the project's own folder", allow_module_level=True)


def _program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _calls(
    folder: Path, main: str, found: dict[str, int], wanted: list[set[str]], fails: str = "none"
) -> list[set[str]]:
    """What make is called with, of which that of one set of `wanted` comes in any order, since it runs side by side.

    `main`: the version in .venv. `found`: other Pythons, and the status each ends with. `fails`: a target of make.
    """
    project, log = folder / "project", folder / "calls"
    _program(project / ".ci" / "run", "")
    shutil.copy(RUN, project / ".ci" / "run")
    _program(project / ".venv" / "bin" / "python", f"echo {main}")
    vectors = "${ATEN_CPU_CAPABILITY:+ on $ATEN_CPU_CAPABILITY}"
    _program(folder / "bin" / "make", f'echo "${{BARE:-}}$*{vectors}" >> {log}; [ "$1" != {fails} ]')
    for name, status in found.items():
        _program(folder / name, f"exit {status}")
    environment = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYENV_ROOT": str(folder / "pyenv")}
    subprocess.run([project / ".ci" / "run"], check=True, env=environment, capture_output=True)
    lines = iter(log.read_text().splitlines())
    return [*({*islice(lines, len(some))} for some in wanted), *({line} for line in lines)]


def test_the_steps(tmp_path: Path) -> None:
    assert _calls(tmp_path, "3.11", {}, ALONE) == ALONE


def test_the_second_command_sees_a_bare_machine_and_is_an_ordinary_user(tmp_path: Path) -> None:
    _program(tmp_path / "shared" / "bare" / "bare.sh", 'BARE="as user ${BARE_USER:-none}: " "$@"')
    steps = [{"as user 1: test"} if step == {"test"} else step for step in ALONE]
    assert _calls(tmp_path, "3.11", {}, steps) == steps


@pytest.mark.parametrize(
    ("main", "found", "newest"),
    [
        ("3.11", {"bin/python3.12": 0, "bin/python3.13": 0}, "python3.13"),
        ("3.13", {"bin/python3.12": 0, "bin/python3.13": 0}, "python3.12"),
        ("3.11", {"bin/python3.14": 1, "pyenv/versions/3.13.0/bin/python": 0}, "pyenv/versions/3.13.0/bin/python"),
    ],
    ids=["on the path", "beside a newer one", "of pyenv"],
)
def test_the_newest_other_python(tmp_path: Path, main: str, found: dict[str, int], newest: str) -> None:
    python = tmp_path / newest if "/" in newest else newest
    steps = [{"setup", f".venv-newest/.ready NEWEST_PYTHON={python}"}, *BEFORE[1:]]
    steps += [{".venv/.hf", f"newest NEWEST_PYTHON={python} on default"}, {"hf"}]
    assert _calls(tmp_path, main, found, steps) == steps


@pytest.mark.parametrize("fails", ["setup", ".venv-newest/.ready", "docs", "check", ".venv/.hf", "newest", "hf"])
def test_a_step_that_fails_ends_it_also_beside_another(tmp_path: Path, fails: str) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        _calls(tmp_path, "3.11", {"bin/python3.13": 0}, [], fails)
