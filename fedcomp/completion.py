"""Tab completion where Hydra's own has nothing: experiments in folders, and the downlink's compressor.

Hydra completes a group's own files alone, and knows no group with an @.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedcomp.experiments import experiments

DOWNLINK = "compressor@downlink="
BREAKS = "COMP_WORDBREAKS=${COMP_WORDBREAKS//@}"
"""For bash, beside Hydra's lines: compressor@downlink is one word."""


def completions(line: str, folders: Sequence[Path]) -> list[str]:
    """What the last word of a command line may become; empty where Hydra knows more.

    Args:
        line: as far as it is typed. folders: those with configs.
    """
    word = line[line.rfind(" ") + 1 :]
    group, chosen, _ = word.partition("=")
    if chosen and group == "experiment":
        words = [f"experiment={name}" for name in experiments(folders)]
    elif chosen:
        words = sorted({f"{DOWNLINK}{path.stem}" for one in folders for path in (one / "compressor").glob("*.yaml")})
    else:
        words = [DOWNLINK] if "@" in word else []
    return [full for full in words if full.startswith(word)]
