"""Symbolic links in a folder of images, which must not lead out of it or show an image twice."""

import os
from collections.abc import Sequence
from pathlib import Path


def check_links(base: Path, splits: Sequence[Path]) -> None:
    """Refuse a symbolic link below `splits` that leaves `base`, or through which an image would be read twice.

    The folder `base` itself may be a link.

    Raises:
        ValueError: a link that is broken, leads out of `base`, into a split, or to a folder that was read already.
    """
    home, apart = base.resolve(), list(dict.fromkeys(splits))
    inside = [split.resolve() for split in apart]
    seen = set(inside)
    for index, split in enumerate(apart):
        if split.is_symlink():
            _check_link(split, home, [*inside[:index], *inside[index + 1 :]])
        open_folders = [split]
        while open_folders:
            for entry in _entries(open_folders.pop()):
                path = Path(entry.path)
                if entry.is_symlink():
                    _check_link(path, home, inside)
                if entry.is_dir():
                    real = path.resolve()
                    if real in seen:
                        raise ValueError(f"link {path} leads to {real}, whose images would be seen twice: remove it")
                    seen.add(real)
                    open_folders.append(path)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """The folder's entries sorted by name; none if there is no such folder, which `_read_split` reports."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _check_link(link: Path, home: Path, splits: Sequence[Path]) -> None:
    """Refuse a broken link, one out of `home`, and one to any of `splits` or a folder that holds one."""
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
