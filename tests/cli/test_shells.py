"""Tab completion by a real fish and a real zsh, and of the scripts beside `fedcomp`."""

from __future__ import annotations

import importlib
import os
import pty
import re
import select
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from fedcomp.cli import entry_points
from fedcomp.cli.completion import INSTALL, SCRIPTS, UNINSTALL, completions, parse_line
from tests.looped import looped

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = f"#!{sys.executable}\nfrom fedcomp.cli.entry_points import fedcomp\nfedcomp()\n"
PATIENCE = 120.0


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A folder with `bin/fedcomp` and `mine/`, and the environment of a shell in it."""
    program = tmp_path / "bin" / "fedcomp"
    program.parent.mkdir()
    (tmp_path / "mine").mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    paths = {"PATH": [str(program.parent)], "PYTHONPATH": [str(ROOT)]}
    env = {name: os.pathsep.join([*own, os.environ.get(name, "")]) for name, own in paths.items()}
    return tmp_path, os.environ | env | {"HOME": str(tmp_path), "TERM": "dumb"}


def test_the_scripts_are_those_of_the_package_with_their_flags(capsys: pytest.CaptureFixture[str]) -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert {*SCRIPTS, "fedcomp"} == declared.keys()
    for name, script in SCRIPTS.items():
        place = declared[name].rpartition(":")[2]
        assert callable(getattr(entry_points, place))
        source = Path(entry_points.__file__).read_text()
        module = importlib.import_module(re.findall(rf'^{place} = _script\("(\S+)"\)', source, flags=re.M)[0])
        with pytest.raises(SystemExit):
            module.main(["--help"])
        assert {*re.findall(r"^  (?:-\w, )?(--[\w-]+)", capsys.readouterr().out, flags=re.M)} == {
            *script.flags,
            "--help",
        }


@looped(
    "line, wanted",
    [
        ("fedcomp-replay outputs network=l", ["network=lte"]),
        ("fedcomp-replay outputs network=lte,5", ["network=lte,5g"]),
        ("fedcomp-evaluate outputs data", ["dataset="]),
        ("/opt/bin/fedcomp-report outputs --e", ["--every-picture"]),
        ("fedcomp-clean --only ", []),
        ("fedcomp-diff outputs/", []),
        ("fedcomp-export compressor=", []),
    ],
)
def test_scripts(line: str, wanted: list[str]) -> None:
    found = completions(parse_line(line))
    assert found is not None
    assert set(wanted) <= set(found)
    assert wanted or not found, "the shell completes files"


def test_hydra_completes_a_scripts_options() -> None:
    line = parse_line("fedcomp-replay outputs --target=0.9 network=lte,5g network.up")
    assert completions(line) is None
    assert line.for_hydra == "fedcomp network=lte network.up"


@pytest.mark.parametrize("shell", INSTALL)
def test_what_is_installed_can_be_removed(fedcomp, capsys: pytest.CaptureFixture[str], shell: str) -> None:
    for act, script in (("install", INSTALL), ("uninstall", UNINSTALL)):
        assert fedcomp("-sc", f"{act}={shell}") == 0
        assert capsys.readouterr().out == script[shell] + "\n"


FISH = """
fedcomp -sc install=fish | source
complete -C 'fedcomp compressor=topk_'
complete -C 'fedcomp compressor=topk -m compressor.fr'
complete -C './bin/fedcomp-report --fr'
complete -C 'fedcomp --config-dir mi'
fedcomp -sc uninstall=fish | source
complete -C 'fedcomp compressor=topk_'
"""


@pytest.mark.thorough
@pytest.mark.program("fish")
def test_a_real_fish(place: tuple[Path, dict[str, str]]) -> None:
    folder, env = place
    done = subprocess.run(["fish", "-c", FISH], cwd=folder, env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.split() == ["compressor=topk_index", "compressor.fraction=", "--front", "mine/"]


def _typed(descriptor: int, text: str, wanted: str) -> None:
    """Type, and wait for what the shell is to write."""
    os.write(descriptor, text.encode())
    found, end = "", time.monotonic() + PATIENCE
    while wanted not in found:
        assert time.monotonic() < end, found
        if select.select([descriptor], [], [], 0.1)[0]:
            found += os.read(descriptor, 4096).decode(errors="replace")


@pytest.mark.thorough
@pytest.mark.program("zsh")
def test_a_real_zsh(place: tuple[Path, dict[str, str]]) -> None:
    folder, env = place
    process, descriptor = pty.fork()
    if not process:
        os.chdir(folder)
        os.execvpe("zsh", ["zsh", "-f", "-i"], env)
    try:
        start = 'autoload -Uz compinit; compinit -u -D; source <(fedcomp -sc install=zsh); echo rea""dy\n'
        _typed(descriptor, start, "ready")
        _typed(descriptor, "fedcomp compressor=topk_\t", "index")
        _typed(descriptor, " compressor.fr\t", "action=")
        _typed(descriptor, "\x15./bin/fedcomp-report --fr\t", "ont")
        _typed(descriptor, "\x15fedcomp --config-dir mi\t", "ne/")
    finally:
        os.close(descriptor)
        os.waitpid(process, 0)
