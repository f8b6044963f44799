"""What a config's own comments say: of the file, of each option, and of each group that a defaults list chooses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

COMMENT = re.compile(r"(?:^|\s)#+\s?(.*)$")


@dataclass(frozen=True)
class Comments:
    """The comments of a YAML file.

    Attributes:
        about: the file's first comment, but for `@package` lines; "" if there is none.
        options: {dotted key: its explanation} of the keys that have one: what stands behind the value, or else the
            whole comment lines right above the key.
        groups: {group, as in `compressor@downlink`: explanation} of the entries of a defaults list.
    """

    about: str
    options: dict[str, str]
    groups: dict[str, str]


def read(path: Path) -> Comments:
    """The comments of a file. Raises YAMLError: it is no YAML."""
    text = path.read_text()
    lines, root = text.splitlines(), yaml.compose(text, Loader=yaml.SafeLoader)
    options, groups = {}, {}
    if isinstance(root, yaml.MappingNode):
        header = _header(lines)
        for key, name, value in _pairs(root):
            options[name] = _behind(lines, key, value) or _above(lines[header:], key, header)
            if name == "defaults" and isinstance(value, yaml.SequenceNode):
                entries = (pair for entry in value.value if isinstance(entry, yaml.MappingNode) for pair in entry.value)
                groups = {str(group.value): _behind(lines, group, choice) for group, choice in entries}
    return Comments(about(path), _filled(options), _filled(groups))


def about(path: Path) -> str:
    """The first comment of a file, without `@package` lines; "" if there is none."""
    comments = (line.removeprefix("#").strip() for line in path.read_text().splitlines() if line.startswith("#"))
    return next((comment for comment in comments if not comment.startswith("@package")), "")


def _pairs(node: yaml.MappingNode, prefix: str = "") -> Iterator[tuple[yaml.Node, str, yaml.Node]]:
    """(key, its dotted name, value) of a mapping and of those within that have lines of their own."""
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        yield key, name, value
        if isinstance(value, yaml.MappingNode) and not value.flow_style:
            yield from _pairs(value, f"{name}.")


def _behind(lines: Sequence[str], key: yaml.Node, value: yaml.Node) -> str:
    """The comment behind a value, and what goes on below it in the same column."""
    own_lines = value.style in ("|", ">") if isinstance(value, yaml.ScalarNode) else not value.flow_style
    end = key.end_mark if own_lines else value.end_mark
    if end.line >= len(lines):
        return ""
    found = COMMENT.search(lines[end.line], end.column)
    if found is None:
        return ""
    words, column = [found.group(1)], lines[end.line].index("#", found.start())
    for line in lines[end.line + 1 :]:
        if line[:column].strip() or not line[column:].startswith("#"):
            break
        words.append(line[column + 1 :])
    return " ".join(" ".join(words).split())


def _above(lines: Sequence[str], key: yaml.Node, skipped: int) -> str:
    """The comment lines right above a key, in its column; `skipped` lines of the file are not in `lines`."""
    column, words = key.start_mark.column, []
    for line in reversed(lines[: max(0, key.start_mark.line - skipped)]):
        if line[:column].strip() or not line[column:].startswith("#"):
            break
        words.append(line[column + 1 :])
    return " ".join(" ".join(reversed(words)).split())


def _header(lines: Sequence[str]) -> int:
    """How many lines the comment at the top of the file has: it speaks of the file, not of the first key."""
    return next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))


def _filled(comments: dict[str, str]) -> dict[str, str]:
    return {name: comment for name, comment in comments.items() if comment}
