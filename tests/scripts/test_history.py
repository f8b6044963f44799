"""Records name commits that can be found: a page is refused otherwise, unless it says so."""

import importlib
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts.reproduce import __main__ as program
from scripts.reproduce import history
from scripts.reproduce.experiment import Experiment
from scripts.reproduce.records import Folder, Run
from tests.looped import looped

ROOT = Path(__file__).resolve().parents[2]
TINY = Experiment("tiny", ["dataset=digits"], None, ["test/accuracy"])
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def _git(root: Path, *arguments: str) -> str:
    who = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    command = ["git", "-C", str(root), "-c", "commit.gpgsign=false", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **who})
    return done.stdout.strip()


@pytest.fixture
def commits(tmp_path: Path) -> tuple[Path, str, str]:
    """A checkout, a commit of its history, and one that was replaced."""
    root = tmp_path / "checkout"
    root.mkdir()
    _git(root, "init", "-q")
    hashes = []
    for message in ("first", "second"):
        _git(root, "commit", "-q", "--allow-empty", "-m", message)
        hashes.append(_git(root, "rev-parse", "HEAD")[:10])
    _git(root, "commit", "-q", "--allow-empty", "--amend", "-m", "third")
    return root, hashes[0], hashes[1]


@needs_git
def test_only_ancestors_are_known(commits: tuple[Path, str, str], tmp_path: Path) -> None:
    root, kept, replaced = commits
    named = [kept, f"{kept}+", "", replaced, f"{replaced}+", "0123456789", *history.LOST]
    assert history.strangers(named, root) == sorted([replaced, "0123456789"])
    shallow = tmp_path / "shallow"
    _git(tmp_path, "clone", "-q", "--depth", "1", f"file://{root}", str(shallow))
    unpacked = root / "sdist"
    unpacked.mkdir()
    for place in (shallow, unpacked, tmp_path):  # their history does not say
        assert history.strangers(named, place) == []


@needs_git
def test_a_page_is_refused(commits: tuple[Path, str, str], tmp_path: Path, monkeypatch, capsys) -> None:
    root, kept, replaced = commits
    monkeypatch.setattr(program, "ROOT", root)
    monkeypatch.setattr(program, "PAPERS", ("tiny",))
    paper = SimpleNamespace(EXPERIMENTS=[TINY], page=lambda folder: "the page")
    monkeypatch.setattr(importlib, "import_module", lambda name: paper)
    page = root / "docs" / "results" / "tiny.md"
    for commit, status in ((replaced, 1), (kept, 0)):
        about = dict.fromkeys(("run", "label", "state", "rounds", "of_rounds", "seconds", "processor", "versions"), "1")
        runs = [Run({**about, "seed": "0", "commit": commit}, [{"round": 1.0}])]
        (page.parent / "records").mkdir(parents=True, exist_ok=True)
        Folder(page.parent / "records")._write(TINY, runs)
        assert program.main(["tiny", "--scale", "paper", "--page-only"]) == status
        assert page.exists() == (status == 0)
    assert f"tiny.runs.csv names commit {replaced}, which is no ancestor of HEAD" in capsys.readouterr().err


def test_a_page_says_what_is_not_in_history() -> None:
    lost = history.LOST[0]
    assert history.shown(["abc", lost, "abc", lost, "abc+", ""]) == (
        f"commits abc, {lost} (of 2 runs, in no history), abc (with changes), unknown (outside a git checkout)"
    )
    assert history.shown(["abc"]) == "commit abc"


@looped("name", program.PAPERS)
def test_committed_records_are_of_this_history(name: str) -> None:
    folder = Folder(ROOT / "docs" / "results" / "records")
    assert program.refused(importlib.import_module(f"scripts.reproduce.{name}"), folder) == ""
