"""The text of `fedcomp --help`: everything, the choices of a group, or the options of a choice."""

import functools
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from omegaconf import DictConfig

from fedcomp.cli.explain import NO_COMMENT, ConfigPart, Option, explain
from fedcomp.config.comments import comments_of, read
from fedcomp.config.compose import compose_with_hydra
from fedcomp.config.loading import folders_of
from fedcomp.config.overrides import each_value, has_several_values
from fedcomp.core.choices import default_choices
from fedcomp.core.folders import CONF
from fedcomp.core.validate import did_you_mean

WIDTH = 100
WIDEST = 26
"""Maximum width of an option with its value; the comment of a wider one begins on the next line."""
WIDEST_NAME = 40
"""Maximum width of a choice's name."""

HEAD = """\
fedcomp: communication-efficient federated learning, accuracy against true bits.

usage: fedcomp [FLAG ...] [GROUP=CHOICE ...] [OPTION=VALUE ...]     in any order
"""
EXAMPLES = """\
Examples:
  fedcomp                                            one run with the defaults below
  fedcomp compressor=topk compressor.fraction=0.01   another uplink; its options follow a dot
  fedcomp compressor=sign compressor@downlink=sign compressor.feedback=error downlink.feedback=error
  fedcomp dataset=mnist model=lenet5 partition=dirichlet partition.alpha=0.1
  fedcomp participation=uniform participation.num_participants=5 client.epochs=3
  fedcomp -m compressor=dense,topk,sign seed=0,1,2   a grid, one run after another
  fedcomp -m launcher=joblib seed=0,1,2              in parallel; launcher=slurm: as a job array
  fedcomp sweeper=optuna client.lr='tag(log, interval(0.01, 1))'   a search for the best objective
  fedcomp experiment=quickstart                      overrides by name; `experiment=` lists them
  fedcomp --config-dir DIR compressor=mine           your own: DIR/compressor/mine.yaml, DIR/mine.py
  fedcomp compressor=topk --cfg job                  show the composed config, run nothing
  eval "$(fedcomp -sc install=bash)"                 tab completion; also install=zsh, install=fish
"""
FLAGS = """\
Flags:
  --help                        this; with GROUP its choices, with GROUP=CHOICE its options
  -m, --multirun                run the grid of all comma-separated values
  --config-dir DIR              more configs and Python files, your own
  --cfg job                     show the composed config, run nothing (hydra, all: Hydra's too)
  --resolve, --package KEY      with --cfg: references replaced by values; only the keys below KEY
  --info [defaults-tree]        how the config is composed
  --version, --hydra-help       versions; Hydra's own flags
"""
RUNS = """\
A run lives in outputs/<name>/<config hash>/seed=<n>/; the same command resumes it, or returns at
once if it is finished. `fedcomp-status outputs/<name>` shows how far runs are,
`fedcomp-report outputs/<name>` compares them, `fedcomp-evaluate <run>` tests a trained model and
`fedcomp-export <run> model.pt` writes its weights, `fedcomp-replay outputs/<name> network=lte`
says how long they take on a network, `fedcomp-diff <run> <run>` what differs,
`fedcomp-clean outputs` removes failed runs, `fedcomp-check compressor=mine` tests a part of yours,
`fedcomp-serve` and `fedcomp-join` make a run between processes, and `fedcomp-sweep` starts W&B's.
"""
DOTS = "Options of a part follow its name and a dot: client.lr=0.1; of the downlink, downlink.<option>."


def show_help(words: Sequence[str], folders: Sequence[Path]) -> None:
    """Print the help for these arguments, of the config that a run of them would have. `folders`: the user's own."""
    groups = [word for word in words if "=" not in word and not word.startswith("~")]
    overrides, grid_values = _first_values([word for word in words if word not in groups])
    print(help_text(compose_with_hydra(overrides, folders), groups, overrides))
    if grid_values:
        print(f"\nOf several values the first is shown: {' '.join(grid_values)}")


def _first_values(words: list[str]) -> tuple[list[str], list[str]]:
    """The overrides with the first of several values each, and those that had several; search ranges are left out."""
    several = [word for word in words if has_several_values(word)]
    firsts = [first for word in several if (first := each_value(word)[0]) != word]
    return [*(word for word in words if word not in several), *firsts], firsts


def show_experiments(folders: Sequence[Path]) -> None:
    """Print every experiment of these folders with its first comment."""
    found = comments_of("experiment", folders)
    width = max(map(len, found))
    print("\n".join(f"{name:<{width}}  {comment}".rstrip() for name, comment in found.items()))


def help_text(config: DictConfig, groups: Sequence[str], words: Sequence[str]) -> str:
    """The text to print.

    Args:
        config: composed, with Hydra's own below `hydra`.
        groups: groups whose choices to list, or full names of options to explain. words: overrides of the command line.
    Raises:
        ValueError: an unknown group.
    """
    folders = folders_of(config)
    run, parts = explain(config, folders)
    shown = _mentioned(parts, words)
    named = {one.name: one for one in run} | {f"{part.key}.{one.name}": one for part in parts for one in part.options}
    blocks = [
        _options([replace(named[word], name=word)]) if word in named else choices(word, parts, folders)
        for word in groups
    ]
    if any(part.group == "experiment" for part in shown):
        blocks.append(options(run, parts))
    elif shown:
        blocks.append(options((), shown))
    return "\n\n".join(blocks) or everything(run, parts, folders)


def everything(run: Sequence[Option], parts: Sequence[ConfigPart], folders: Sequence[Path]) -> str:
    """All groups with their choices, examples, flags, and all options with their values."""
    lines = ["Groups and their choices (`fedcomp --help GROUP` says what each is):"]
    for group in read(CONF / "train.yaml").groups:
        if "/" not in group and group != "experiment":
            words = ", ".join(comments_of(group, folders)) if "@" not in group else f"as {group.partition('@')[0]}"
            lines += textwrap.wrap(f"  {group}: {words}", WIDTH, subsequent_indent="    ", break_on_hyphens=False)
    lines.append("  experiment: `fedcomp experiment=` lists them")
    return "\n".join([HEAD, *lines, "", EXAMPLES, FLAGS, RUNS, options(run, parts)])


def options(run: Sequence[Option], parts: Sequence[ConfigPart]) -> str:
    """All options of the run and of these parts, with their values."""
    blocks = [f"Options of the run, with their values (OPTION=VALUE):\n{_options(run)}"] if run else []
    if any(part.options for part in parts):
        blocks.append(DOTS)
    for part in parts:
        title = f"{part.group}={part.choice}: {part.about}"
        blocks.append("\n".join([*_wrapped("", 0, title), *([_options(part.options)] if part.options else [])]))
    return "\n\n".join(blocks)


def choices(group: str, parts: Sequence[ConfigPart], folders: Sequence[Path]) -> str:
    """The choices of a group, one per line. Raises ValueError: an unknown group."""
    groups = {group: comment for group, comment in read(CONF / "train.yaml").groups.items() if "/" not in group}
    group = next((one for one in groups if one.partition("@")[2] == group), group)
    comments = comments_of(group, folders)
    if not comments:
        hint = did_you_mean(group, groups)
        raise ValueError(f"there is no group '{group}' to help with{hint} (there are: {', '.join(groups)})")
    current = next((part.choice for part in parts if part.group == group), None)
    title = f"{group}: {groups[group]}" if group in groups else group
    rows = _table([(name, comment or NO_COMMENT) for name, comment in comments.items()], WIDEST_NAME)
    example = f"`fedcomp --help {group}={current or next(iter(comments))}` explains the options of a choice."
    return f"{title}{f'; now {current}' if current else ''}\n{rows}\n\n{example}"


def _mentioned(parts: Sequence[ConfigPart], words: Iterable[str]) -> list[ConfigPart]:
    """The parts that a command line chooses or changes, and those that an experiment chooses.

    An experiment's choices are recognised by not being the defaults of `conf/train.yaml`.
    """
    keys = {word.partition("=")[0].lstrip("+~").partition(".")[0] for word in words}
    named = [part for part in parts if part.group in keys or part.key in keys]
    defaults = default_choices()
    return [part for part in parts if part in named or part.choice != defaults.get(part.group)] if named else []


def _options(options: Sequence[Option]) -> str:
    return _table([(f"{one.name}={one.value}", one.about) for one in options])


def _table(rows: Sequence[tuple[str, str]], widest: int = WIDEST) -> str:
    """Two columns; a left cell wider than `widest` has its own line."""
    width = max((len(left) for left, _ in rows if len(left) <= widest), default=widest)
    return "\n".join(line for left, right in rows for line in _wrapped(left, width, right))


def _wrapped(left: str, width: int, right: str) -> list[str]:
    """The lines of one row, or of a paragraph if `left` is empty."""
    indent = " " * (width + 4) if left else "  "
    wrap = functools.partial(textwrap.wrap, right, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
    if not left:
        return wrap()
    if len(left) > width:
        return [f"  {_cut(left)}", *wrap(initial_indent=indent)]
    return wrap(initial_indent=f"  {left:<{width}}  ")


def _cut(left: str) -> str:
    """A left cell, cut to the width: a list of figures or a path may be long."""
    return left if len(left) <= WIDTH - 2 else f"{left[: WIDTH - 5]}..."
