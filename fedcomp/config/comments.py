"""Reads the comments of config files (of the file, its options, its groups), and lists the choices of a group."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from fedcomp.core.choices import FAST_LOADER, lineage

PARTS_OF_EXPERIMENTS = ("method", "setting", "data", "split", "case", "quantiser", "task")
"""Folders of configs that experiments share or compare; these are not experiments themselves."""
COMMENT = re.compile(r"(?:^|\s)#+\s?(.*)$")


@dataclass(frozen=True)
class Comments:
    """The comments of a YAML file.

    Attributes:
        about: the file's first comment, without `@package` lines; "" if there is none.
        options: {dotted key: comment}: the comment behind the value, or else the comment lines directly above the key;
            of an option without one, the comment in the file that this one begins with; keys without any are left out.
        groups: {group, such as `compressor@downlink`: comment} of the entries of a defaults list.
    """

    about: str
    options: dict[str, str]
    groups: dict[str, str]


def read(path: Path) -> Comments:
    """The comments of a file. Raises YAMLError if the file is not valid YAML."""
    *inherited, own = map(_read, lineage(path))
    options = {name: comment for file in (*inherited, own) for name, comment in file.options.items()}
    return replace(own, options=options)


def _read(path: Path) -> Comments:
    text = path.read_text(encoding="utf-8")
    lines, root = text.splitlines(), yaml.compose(text, Loader=FAST_LOADER)
    options, groups = {}, {}
    if isinstance(root, yaml.MappingNode):
        header = _header(lines)
        for key, name, value in _pairs(root):
            options[name] = _behind(lines, key, value) or _above(lines[header:], key, header)
            if name == "defaults" and isinstance(value, yaml.SequenceNode):
                entries = (pair for entry in value.value if isinstance(entry, yaml.MappingNode) for pair in entry.value)
                groups = {str(group.value): _behind(lines, group, choice) for group, choice in entries}
    return Comments(about(path), _non_empty(options), _non_empty(groups))


def about(path: Path) -> str:
    """The first comment of a file, without `@package` lines; "" if there is none."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comments = (line.removeprefix("#").strip() for line in lines if line.startswith("#"))
    return next((comment for comment in comments if not comment.startswith("@package")), "")


def comments_of(group: str, folders: Iterable[Path]) -> dict[str, str]:
    """{name: first comment of its YAML} of a group's choices in these config folders, such as the experiments."""
    comments: dict[str, str] = {}
    for root in (folder / group.partition("@")[0] for folder in folders):
        for path in root.rglob("*.yaml"):
            if group != "experiment" or path.parent.name not in PARTS_OF_EXPERIMENTS:
                comments.setdefault(path.relative_to(root).with_suffix("").as_posix(), about(path))
    return dict(sorted(comments.items()))


def _pairs(node: yaml.MappingNode, prefix: str = "") -> Iterator[tuple[yaml.Node, str, yaml.Node]]:
    """(key, its dotted name, value) of a mapping, and of the mappings inside it that are not written in one line."""
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        yield key, name, value
        if isinstance(value, yaml.MappingNode) and not value.flow_style:
            yield from _pairs(value, f"{name}.")


def _behind(lines: Sequence[str], key: yaml.Node, value: yaml.Node) -> str:
    """The comment behind a value, with its continuation on the next lines in the same column."""
    is_block = value.style in ("|", ">") if isinstance(value, yaml.ScalarNode) else not value.flow_style
    end = key.end_mark if is_block else value.end_mark
    if end.line >= len(lines):
        return ""
    match = COMMENT.search(lines[end.line], end.column)
    if match is None:
        return ""
    words, column = [match.group(1)], lines[end.line].index("#", match.start())
    for line in lines[end.line + 1 :]:
        if line[:column].strip() or not line[column:].startswith("#"):
            break
        words.append(line[column + 1 :])
    return " ".join(" ".join(words).split())


def _above(lines: Sequence[str], key: yaml.Node, skipped: int) -> str:
    """The comment lines directly above a key, in its column; `lines` lacks the first `skipped` lines of the file."""
    column, words = key.start_mark.column, []
    for line in reversed(lines[: max(0, key.start_mark.line - skipped)]):
        if line[:column].strip() or not line[column:].startswith("#"):
            break
        words.append(line[column + 1 :])
    return " ".join(" ".join(reversed(words)).split())


def _header(lines: Sequence[str]) -> int:
    """Number of lines of the comment at the top of the file, which is about the file and not about the first key."""
    return next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))


def _non_empty(comments: dict[str, str]) -> dict[str, str]:
    return {name: comment for name, comment in comments.items() if comment}
