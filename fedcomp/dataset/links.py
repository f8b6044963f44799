"""Symbolic links in a folder of images: each picture is to be seen once, and to be the dataset's own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def check_links(base: Path, splits: Sequence[Path]) -> None:
    """Refuse a link below `splits` unless it leads to what lies in `base` and is not seen otherwise.

    The folder `base` itself may be a link.

    Raises:
        ValueError: a link that leads nowhere, out of `base`, into a split, or round to a folder seen already.
    """
    home, apart = base.resolve(), list(dict.fromkeys(splits))
    inside = [split.resolve() for split in apart]
    seen = set(inside)
    for index, split in enumerate(apart):
        if split.is_symlink():
            _check(split, home, [*inside[:index], *inside[index + 1 :]])
        open_folders = [split]
        while open_folders:
            for entry in _entries(open_folders.pop()):
                path = Path(entry.path)
                if entry.is_symlink():
                    _check(path, home, inside)
                if entry.is_dir():
                    real = path.resolve()
                    if real in seen:
                        raise ValueError(f"link {path} leads round, to {real}, which is seen already: remove it")
                    seen.add(real)
                    open_folders.append(path)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What the folder holds, by name; nothing if there is no such folder, which is said elsewhere."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _check(link: Path, home: Path, splits: Sequence[Path]) -> None:
    """Refuse the link; `splits` are the folders that it must not lead into, nor to what holds them."""
    real = Path(os.path.realpath(link))
    if not real.exists():
        raise ValueError(f"link {link} leads nowhere (to {real}): repair or remove it")
    if not real.is_relative_to(home):
        raise ValueError(
            f"link {link} leads out of {home}, to {real}: copy what it names into the folder, or set dataset.folder to "
            "a folder that holds all images"
        )
    if any(real.is_relative_to(split) or split.is_relative_to(real) for split in splits):
        raise ValueError(f"link {link} leads to {real}, whose images would be seen twice: remove it")
