"""The commands of docs/tutorial.md run one after another in a folder of one's own, shortened."""

import importlib
import re
import shlex
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, blocks
from tests.docs.test_extending import outside, write  # noqa: F401  (a fixture)

PAGE = "docs/tutorial.md"
SCRIPTS = {
    "fedcomp-check": "fedcomp.cli.check",
    "fedcomp-report": "fedcomp.reporting.__main__",
    "fedcomp-status": "fedcomp.status.__main__",
}
ELSEWHERE = ("launcher=", "launcher.", "tracker=")
"""Options of a cluster and of W&B: here the runs of a grid run one after another."""


def _commands() -> list[list[str]]:
    lines = [line for language, text in blocks(PAGES[PAGE]) if not language for line in text.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith("fedcomp")]


def _shortened(words: list[str]) -> list[str]:
    kept = [re.sub(r"^seed=.*", "seed=0,1", word) for word in words if not word.startswith(ELSEWHERE)]
    return [*kept, "rounds=2", "eval_every=1", "quiet=true"]


@pytest.mark.thorough
def test_the_tutorial(fedcomp, outside: Path) -> None:  # noqa: F811
    write(PAGE, outside)
    for name, *words in _commands():
        if name == "fedcomp":
            assert fedcomp(*_shortened(words), f"output_root={outside / 'outputs'}") == 0, words
        else:
            assert importlib.import_module(SCRIPTS[name]).main(words) == 0, [name, *words]
    assert len(list((outside / "outputs").rglob("metrics.jsonl"))) == 1 + 2 * (4 + 3)
    for asked in ("report/table.tex", "report/report.html", "paper/figure.pdf"):
        assert (outside / asked).is_file(), asked
    (python,) = [text for language, text in blocks(PAGES[PAGE]) if language == "python" and "load_runs" in text]
    exec(python, {})  # the example from Python


def test_options_of_the_cluster_exist() -> None:
    words = [word for command in _commands() for word in command if word.startswith("launcher.")]
    options = (Path(__file__).resolve().parents[2] / "conf" / "launcher" / "slurm.yaml").read_text()
    assert words
    for word in words:
        assert re.search(rf"^{word.partition('=')[0].removeprefix('launcher.')}:", options, re.M), word
