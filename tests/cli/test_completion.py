"""Tab completion, asked in this process and by a real bash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedcomp.cli.completion import parse_line

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = f"#!{sys.executable}\nfrom fedcomp.cli.entry_points import fedcomp\nfedcomp()\n"
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


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder of the user's own configs, with a space in its name."""
    folder = tmp_path / "my own"
    (folder / "compressor").mkdir(parents=True)
    (folder / "compressor" / "quarter.yaml").write_text("defaults: [topk, _self_]\nshare: 0.25\n")
    (folder / "experiment" / "lab").mkdir(parents=True)
    (folder / "experiment" / "lab" / "one.yaml").write_text("# @package _global_\nrounds: 3\n")
    return folder


@pytest.mark.parametrize(
    ("line", "wanted"),
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


@pytest.mark.thorough
def test_a_real_bash(mine: Path) -> None:
    program = mine.parent / "bin" / "fedcomp"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = os.environ | {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": path}
    done = subprocess.run(
        ["bash", "--norc", "-c", BASH], cwd=mine.parent, env=env, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "complete -o default -o nospace -F _fedcomp fedcomp",
        "quarter",
        "compressor.share=",
        "topk topk_index",
        "dirichlet iid labels natural one_each shards",
        "",
        "gone",
    ]
