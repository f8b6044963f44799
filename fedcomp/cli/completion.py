"""Tab completion: what the last word of a command line may become.

Hydra completes options and the names of groups. It is told the line in a form that it understands: of the flags only
-m, and `--config-dir` as its own flag. Choices of groups are completed here, for Hydra knows neither experiments in
folders, nor `compressor@downlink`, nor the second value of a grid.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedcomp.cli.arguments import SWITCHES, VALUES, Arguments, parse, value_of
from fedcomp.config.comments import read
from fedcomp.config.defaults import CONF
from fedcomp.config.experiments import experiments

SWEPT = re.compile(r"([\w@/]+=[\w/]+),[\w/,]*")
"""A group with several choices: `compressor=topk,sign`."""

INSTALL = r"""_fedcomp()
{
    local line=${COMP_LINE:0:COMP_POINT} word=${COMP_WORDS[COMP_CWORD]} last full
    last=${line##*[[:space:]]}
    [[ $word == [=:@] ]] && word=
    [[ $last == *"$word" ]] || word=$last
    COMPREPLY=()
    while IFS= read -r full; do
        [[ $full ]] && COMPREPLY+=("${full#"${last%"$word"}"}")
    done < <(COMP_LINE=$line "${COMP_WORDS[0]/#\~/$HOME}" -sc query=bash 2>/dev/null | tr ' ' '\n')
}
complete -o default -o nospace -F _fedcomp fedcomp"""
"""For bash. Answers are whole words; readline replaces only what stands behind the last of COMP_WORDBREAKS."""

UNINSTALL = "complete -r fedcomp; unset -f _fedcomp"


@dataclass(frozen=True)
class Line:
    """A command line as far as it is typed.

    Attributes:
        before: the words before the last one, sorted. flag: whose value the last word is; "" if of none.
        word: the last word; "" where a new one begins.
    """

    before: Arguments
    flag: str
    word: str

    @property
    def folders(self) -> list[Path]:
        """The user's own config folders that there are."""
        return [folder for folder in self.before.config_folders if folder.is_dir()]

    @property
    def for_hydra(self) -> str:
        """The line without what Hydra's completion does not understand."""
        settled = [
            SWEPT.sub(r"\1", word) for word in self.before.overrides if "=" in word and not re.search(r"\s", word)
        ]
        return " ".join(["fedcomp", *settled, self.word])


def typed(line: str) -> Line:
    """Read a line that begins with the program: `fedcomp`, or `python` with a file or a module."""
    words = _split(line)
    word = "" if not line or line[-1].isspace() else words.pop()
    if words and Path(words[0]).name.startswith("python"):
        words = words[2 if words[1:2] == ["-m"] else 1 :]
    words = words[1:]
    flag = value_of(words[-1]) if words else ""
    try:
        before = parse(words[:-1] if flag else words)
    except ValueError:  # something earlier that cannot be, which is for the command itself to say
        before = Arguments((), ())
    return Line(before, flag, word)


def completions(line: Line) -> list[str] | None:
    """What the last word may become; None: Hydra knows; []: a file or a folder, for the shell to complete."""
    word, folders = line.word, [CONF, *line.folders]
    if line.flag:
        found = list(VALUES[line.flag])
    elif word.startswith("-"):
        found = [] if "=" in word else [*SWITCHES, *VALUES]
    elif "=" in word:
        group, _, values = word.partition("=")
        earlier = values[: values.rfind(",") + 1]
        found = [f"{group}={earlier}{choice}" for choice in _choices(group, folders)]
        if not found:
            return None
    elif "@" in word:
        found = [f"{group}=" for group in read(CONF / "train.yaml").groups if "@" in group]
    elif line.before.has("--help") and word:
        found = [group for group in read(CONF / "train.yaml").groups if "/" not in group]
    else:
        return None
    return sorted(one for one in found if one.startswith(word))


def _choices(group: str, folders: Sequence[Path]) -> list[str]:
    if group == "experiment":
        return list(experiments(folders))
    return sorted({path.stem for one in folders for path in (one / group.partition("@")[0]).glob("*.yaml")})


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # a quotation that is not closed yet
        return line.split()
