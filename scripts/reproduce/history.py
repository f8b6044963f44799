"""Whether the commits that records name can still be found: a page whose code nobody can look up shows nothing."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

CHANGED = "+"
"""After a commit: files were changed since."""


def shown(commits: Iterable[str]) -> str:
    """The runs' commits as a page names them; an empty one is of runs outside a git checkout."""
    texts = []
    for commit in dict.fromkeys(commits):
        plain = commit.removesuffix(CHANGED)
        texts.append((plain or "unknown (outside a git checkout)") + " (with changes)" * (plain != commit))
    return f"commit{'s' if len(texts) > 1 else ''} {', '.join(texts)}"


def strangers(commits: Iterable[str], root: Path) -> list[str]:
    """Those that are not ancestors of HEAD.

    None where that cannot be told: `root` is no git checkout of its own (an sdist, a wheel), or one without its whole
    history (a shallow clone).
    """
    top, shallow = _git(root, "rev-parse", "--show-toplevel"), _git(root, "rev-parse", "--is-shallow-repository")
    if top is None or Path(top).resolve() != root.resolve() or shallow != "false":
        return []
    named = {commit.removesuffix(CHANGED) for commit in commits} - {""}
    return sorted(commit for commit in named if _git(root, "merge-base", "--is-ancestor", commit, "HEAD") is None)


def _git(root: Path, *arguments: str) -> str | None:
    """What git prints; None where there is no git, or it fails or denies."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
