"""Tab completion of `fedcomp` and of the scripts beside it: asked in this process, and by a real bash, fish and zsh."""

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
from tests.outside import write_files

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


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder of the user's own configs, with a space in its name."""
    compressor, experiment = "defaults: [topk, _self_]\nshare: 0.25\n", "# @package _global_\nrounds: 3\n"
    files = {"compressor/quarter.yaml": compressor, "experiment/lab/one.yaml": experiment}
    return write_files(tmp_path / "my own", files)


@looped(
    "line, wanted",
    [
        ("experiment=fedm", {"experiment=fedmrn/ablation", "experiment=fedmrn/complexity"}),
        ("rounds=3 compressor@downlink=to", {"compressor@downlink=topk"}),
        ("compressor@d", {"compressor@downlink="}),
        ("compressor=to", {"compressor=topk"}),
        ("-m compressor=topk,si", {"compressor=topk,sign", "compressor=topk,sign_model"}),
        ("comp", {"compressor=", "compressor."}),
        ("compressor=topk,sign -m compressor.f", {"compressor.fraction=", "compressor.feedback="}),
        ("compressor@downlink=sign downlink.gr", {"downlink.granularity="}),
        ("--multi", {"--multirun"}),
        ("--cfg ", {"job", "hydra", "all"}),
        ("--help comp", {"compressor", "compressor@downlink"}),
        ("--config-dir MINE compressor=q", {"compressor=qsgd", "compressor=quarter"}),
        ("a=1 --config-dir=MINE experiment=l", {"experiment=lab/one"}),
        ("compressor=quarter --config-dir MINE compressor.sh", {"compressor.share="}),
        ("compressor=topkk --config-dir /nowhere compressor=to", {"compressor=topk"}),
    ],
)
def test_a_word_becomes(fedcomp, capsys, monkeypatch, mine: Path, line: str, wanted: set[str]) -> None:
    quoted = line.replace("MINE", f"'{mine}'")
    monkeypatch.setenv("COMP_LINE", f"fedcomp {quoted}")
    assert fedcomp("-sc", "query=bash") == 0
    found = capsys.readouterr().out.split()
    assert wanted <= set(found)
    last = "" if line.endswith(" ") else line.split()[-1]
    assert all(one.startswith(last) for one in found)


@pytest.mark.parametrize("line", ["--config-dir my", "--config-path=o", "a=1 --package cl", "--help=a"])
def test_the_shell_completes_files(fedcomp, capsys, monkeypatch, line: str) -> None:
    monkeypatch.setenv("COMP_LINE", f"fedcomp {line}")
    assert fedcomp("-sc", "query=bash") == 0
    assert capsys.readouterr().out.split() == []


def test_what_hydra_is_asked() -> None:
    line = parse_line("python -m fedcomp rounds=5 -m compressor=topk,sign client.lr='tag(log, interval(0.1, 1))' comp")
    assert line.for_hydra == "fedcomp rounds=5 compressor=topk comp"
    assert parse_line("python scripts/train.py a=1 b").for_hydra == "fedcomp a=1 b"
    assert parse_line("/opt/bin/fedcomp a=1 ").for_hydra == "fedcomp a=1 "
    assert parse_line("fedcomp client.lr='tag(log, ").word == ""


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
        shown = re.findall(r"^  (?:-\w, )?(--[\w-]+)", capsys.readouterr().out, flags=re.M)
        assert {*shown} == {*script.flags, "--help"}


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


@pytest.mark.parametrize("words", [["install=bsh"], ["query"], []])
def test_what_it_does_not_do_is_one_line(fedcomp, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert fedcomp("-sc", *words) == 2
    assert capsys.readouterr().err.endswith(
        "error: -sc takes install=SHELL, uninstall=SHELL or query=SHELL; shells are bash, zsh, fish\n"
    )


BASH = r"""
eval "$(fedcomp -sc install=bash)"
press() {  # what TAB makes of a line, whose words are split as readline splits them
    COMP_LINE=$1; COMP_POINT=${#1}; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
    _fedcomp; echo "${COMPREPLY[*]}"
}
complete -p fedcomp
press 'fedcomp rounds=5 -cd my\ own compressor=qua' fedcomp rounds = 5 -cd 'my\ own' compressor = qua
press 'fedcomp -cd my\ own -m compressor=quarter compressor.sh' \
    fedcomp -cd 'my\ own' -m compressor = quarter compressor.sh
press 'fedcomp compressor@downlink=to' fedcomp compressor @ downlink = to
press 'fedcomp partition=' fedcomp partition =
press 'fedcomp --config-dir my' fedcomp --config-dir my
eval "$(fedcomp -sc uninstall=bash)"
complete -p fedcomp 2>/dev/null || echo gone
"""


@pytest.mark.thorough
def test_a_real_bash(mine: Path, place: tuple[Path, dict[str, str]]) -> None:
    folder, env = place
    command = ["bash", "--norc", "-c", BASH]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    first, *completed, last = done.stdout.splitlines()
    assert (first, last) == ("complete -o default -o nospace -F _fedcomp fedcomp", "gone")
    partitions = "dirichlet iid labels natural one_each shards"
    assert completed == ["quarter", "compressor.share=", "topk topk_index", partitions, ""]


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
