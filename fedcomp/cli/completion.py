"""Tab completion of a command line's last argument.

Hydra completes options and the names of groups, given a line in a form that it can parse (`Line.for_hydra`). Flags and
choices are completed here: Hydra completes neither experiments in folders, nor `compressor@downlink`, nor the second
value of a grid.

`fedcomp -sc install=<shell>` prints what makes a shell ask `fedcomp -sc query=<shell>`, with the line up to the cursor
in COMP_LINE. It completes files and folders where it gets no answer.
"""

import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedcomp.cli.arguments import FLAGS, Arguments, flag_with_value, parse
from fedcomp.config.comments import comments_of, read
from fedcomp.core.folders import CONF

SWEPT = re.compile(r"([\w@/]+=[\w/]+),[\w/,]*")
"""A group with several choices: `compressor=topk,sign`."""


@dataclass(frozen=True)
class Script:
    """A console script beside `fedcomp`, whose other arguments are files and folders.

    Attributes:
        flags: that it takes. groups: of which it takes choices, `network=lte`.
    """

    flags: tuple[str, ...]
    groups: tuple[str, ...] = ()


PARTS = ("algorithm", "compressor", "dataset", "model", "partition", "participation")
REMOTE = ("experiment", *PARTS)
SCRIPTS = {
    "fedcomp-check": Script(("--config-dir",), (*PARTS, "client", "server")),
    "fedcomp-clean": Script(("--only", "--dry-run", "--yes")),
    "fedcomp-diff": Script(()),
    "fedcomp-evaluate": Script(("--clients", "--config-dir", "--out", "--trust-code"), ("dataset",)),
    "fedcomp-export": Script(("--merge", "--config-dir", "--trust-code")),
    "fedcomp-join": Script(("--client", "--server", "--key", "--config-dir", "--patience"), REMOTE),
    "fedcomp-replay": Script(("--target", "--out", "--partial", "--config-dir"), ("network",)),
    "fedcomp-report": Script(
        (
            *("--out", "--target", "--against", "--no-paper-counts", "--front", "--wandb", "--every-picture"),
            *("--columns", "--order", "--rename", "--figure", "--size", "--xlim", "--ylim", "--legend"),
        )
    ),
    "fedcomp-serve": Script(("--listen", "--key", "--config-dir", "--need-all", "--patience"), REMOTE),
    "fedcomp-status": Script(("--watch",)),
    "fedcomp-sweep": Script(("--check",)),
}

PROGRAMS = " ".join(["fedcomp", *SCRIPTS])

BASH = rf"""_fedcomp()
{{
    local line=${{COMP_LINE:0:COMP_POINT}} word=${{COMP_WORDS[COMP_CWORD]}} last full program
    last=${{line##*[[:space:]]}}
    [[ $word == [=:@] ]] && word=
    [[ $last == *"$word" ]] || word=$last
    program=${{COMP_WORDS[0]/#\~/$HOME}}
    COMPREPLY=()
    while IFS= read -r full; do
        [[ $full ]] && COMPREPLY+=("${{full#"${{last%"$word"}}"}}")
    done < <(COMP_LINE=$line "${{program%fedcomp*}}fedcomp" -sc query=bash 2>/dev/null | tr ' ' '\n')
}}
complete -o default -o nospace -F _fedcomp {PROGRAMS}"""
"""Completions are whole words, but readline replaces only the part after the last of COMP_WORDBREAKS."""

ZSH = rf"""_fedcomp()
{{
    local program=${{~words[1]}} answer
    local -a found
    answer=$(COMP_LINE=$LBUFFER "${{program%fedcomp*}}fedcomp" -sc query=zsh 2>/dev/null)
    found=(${{=answer}})
    if (( $#found )); then
        compadd -Q -S '' -- $found
    else
        _files
    fi
}}
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit; }}
compdef _fedcomp {PROGRAMS}"""

FISH = r"""function __fedcomp
    set -l words (commandline -opc)
    set -lx COMP_LINE (commandline -cp)
    set -l program (string replace -r 'fedcomp[^/]*$' fedcomp -- (string replace -r '^~' $HOME -- $words[1]))
    set -l found ($program -sc query=fish 2>/dev/null | string split -n ' ')
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
for program in PROGRAMS
    complete -c $program -f -k -a '(__fedcomp)'
end""".replace("PROGRAMS", PROGRAMS)

INSTALL = {"bash": BASH, "zsh": ZSH, "fish": FISH}
UNINSTALL = {
    "bash": f"complete -r {PROGRAMS}; unset -f _fedcomp",
    "zsh": f"compdef -d {PROGRAMS}; unfunction _fedcomp",
    "fish": f"for program in {PROGRAMS}; complete -c $program -e; end; functions -e __fedcomp",
}
ASKED = re.compile(f"(install|uninstall|query)=({'|'.join(INSTALL)})")


@dataclass(frozen=True)
class Line:
    """A command line that is being typed.

    Attributes:
        before: the arguments before the last one. flag: the flag whose value the last one is; "" if it is not a value.
        word: the last argument; "" where a new one begins. program: `fedcomp`, or a script's name.
    """

    before: Arguments
    flag: str
    word: str
    program: str = "fedcomp"

    @property
    def folders(self) -> list[Path]:
        """The folder that `--config-dir` names, if it exists."""
        folder = self.before.config_folder
        return [folder] if folder is not None and folder.is_dir() else []

    @property
    def for_hydra(self) -> str:
        """The line without what Hydra's completion cannot parse."""
        overrides = [
            SWEPT.sub(r"\1", word) for word in self.before.overrides if "=" in word and not re.search(r"\s", word)
        ]
        return " ".join(["fedcomp", *overrides, self.word])


def complete(words: Sequence[str]) -> bool:
    """Print what `-sc` is asked with these words: a shell's script, or completions; False if Hydra must do it.

    Raises ValueError: they ask for nothing that there is.
    """
    if not any(map(ASKED.fullmatch, words)):
        raise ValueError(f"-sc takes install=SHELL, uninstall=SHELL or query=SHELL; shells are {', '.join(INSTALL)}")
    if not sys.argv[0].endswith(".py"):  # Hydra installs it for `python scripts/train.py`
        for act, scripts in (("install", INSTALL), ("uninstall", UNINSTALL)):
            for shell, script in scripts.items():
                if f"{act}={shell}" in words:
                    print(script)
                    return True
    if not any(word.startswith("query=") for word in words):
        return False
    line = parse_line(os.environ.get("COMP_LINE", ""))
    candidates = completions(line)
    if candidates is None:  # which gives the same answer to every shell
        sys.argv = ["query=bash" if word.startswith("query=") else word for word in sys.argv]
        os.environ["COMP_LINE"] = line.for_hydra
        sys.argv[1:1] = [f"--config-dir={folder}" for folder in line.folders]
        return False
    print("\n".join(candidates))
    return True


def parse_line(line: str) -> Line:
    """Parse a line that begins with the program: `fedcomp`, or `python` with a file or a module."""
    words = _split(line)
    word = "" if not line or line[-1].isspace() else words.pop()
    if words and Path(words[0]).name.startswith("python"):
        words = words[2 if words[1:2] == ["-m"] else 1 :]
    program = Path(words[0]).name if words else ""
    if program in SCRIPTS:
        chosen = tuple(one for one in words[1:] if _is_override(one, SCRIPTS[program].groups))
        return Line(Arguments((), chosen), "", word, program)
    words = words[1:]
    flag = flag_with_value(words[-1]) if words else ""
    try:
        before = parse(words[:-1] if flag else words)
    except ValueError:  # an earlier argument is wrong: the command itself reports it
        before = Arguments((), ())
    return Line(before, flag, word)


def completions(line: Line) -> list[str] | None:
    """Completions of the last argument; None: Hydra completes it; []: the shell completes files and folders."""
    word, folders = line.word, [CONF, *line.folders]
    if line.program in SCRIPTS:
        script, (group, equals, values) = SCRIPTS[line.program], word.partition("=")
        if _is_override(word, script.groups) and "." in group:
            return None
        candidates = _swept(group, values, [CONF]) if group in script.groups else []
        if not equals:
            candidates = [*script.flags, "--help"] if word.startswith("-") else [f"{one}=" for one in script.groups]
    elif line.flag:
        candidates = list(FLAGS[line.flag].choices or ())
    elif word.startswith("-"):
        candidates = [] if "=" in word else list(FLAGS)
    elif "=" in word:
        group, _, values = word.partition("=")
        candidates = _swept(group, values, folders)
        if not candidates:
            return None
    elif "@" in word:
        candidates = [f"{group}=" for group in read(CONF / "train.yaml").groups if "@" in group]
    elif line.before.has("--help") and word:
        candidates = [group for group in read(CONF / "train.yaml").groups if "/" not in group]
    else:
        return None
    return sorted(one for one in candidates if one.startswith(word))


def _is_override(word: str, groups: Sequence[str]) -> bool:
    """Whether it begins with a choice or an option of one of the groups: `network=`, `network.up_bps=`."""
    return word.startswith(tuple(group + end for group in groups for end in "=."))


def _swept(group: str, values: str, folders: Sequence[Path]) -> list[str]:
    """`group=` with every choice as the last of the comma-separated `values`."""
    earlier = values[: values.rfind(",") + 1]
    return [f"{group}={earlier}{choice}" for choice in comments_of(group, folders)]


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # an unclosed quote
        return line.split()
