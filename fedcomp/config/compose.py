"""The config of a run from overrides, as on the command line."""

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from hydra.errors import HydraException
from omegaconf import DictConfig, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from fedcomp.config.errors.hydra_errors import error_message
from fedcomp.config.loading import load
from fedcomp.config.overrides import check_choices, has_several_values, quote
from fedcomp.core.folders import CONF

NEEDED = ("fedcomp", "torch", "torchvision", "numpy", "numba", "hydra", "omegaconf", "yaml", "matplotlib", "rich")
"""Packages that a file of the user's own must not stand before."""


def compose(overrides: Iterable[str] = (), config_dir: str | Path | None = None) -> DictConfig:
    """The config that `fedcomp OVERRIDE ...` runs.

    Args:
        overrides: as on the command line, ["compressor=topk", "compressor.fraction=0.03", "rounds=50"].
        config_dir: a folder of one's own configs and Python files, as with `--config-dir`.
    Raises:
        ValueError: an override is none, names what does not exist, or has several values: compose each. One line.
    """
    if not isinstance(overrides, Iterable):
        raise ValueError(f"{overrides!r} is no config: give overrides such as ['rounds=50']")
    given = [overrides] if isinstance(overrides, str) else list(overrides)
    wrong = [word for word in given if not (isinstance(word, str) and re.match(r"~|[^-].*=", word))]
    if wrong:
        flag = "; a flag is none: config_dir= names a folder of your own" if str(wrong[0]).startswith("-") else ""
        raise ValueError(f"{wrong[0]!r} is no override: give strings such as 'rounds=50'{flag}")
    check_choices(given)
    words = tuple(map(quote, given))
    several = next((word for word in words if has_several_values(word)), None)
    if several is not None:
        raise ValueError(f"{several} has several values: give one of them")
    config = compose_with_hydra(words, find_own_code(config_dir))
    with open_dict(config):
        del config["hydra"]
    return config


def find_own_code(config_dir: str | Path | None, named_by: str = "config_dir") -> list[Path]:
    """Let Python find the modules of the user's config folder, and last of all those of the current folder.

    Args:
        named_by: what names the folder, for the errors.
    Returns:
        The config folder, if there is one.
    Raises:
        ValueError: it is no folder, holds nothing, or has a config of fedcomp's name.
    """
    folders = [] if config_dir is None else [Path(config_dir).expanduser().resolve()]
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"there is no folder {folder}, which {named_by} names")
        if not any(next(folder.rglob(end), None) for end in ("*.yaml", "*.py")):
            raise ValueError(f"{folder}, which {named_by} names, holds no config: put GROUP/NAME.yaml there")
        _check_own_names(folder)
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))  # configs in it may name Python files in it
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # such as mine.py of model.path=mine.Net
    return folders


def _check_own_names(folder: Path) -> None:
    """Raise ValueError if a config, or a module, in the user's folder would be taken instead of one that is needed."""
    names = () if folder.resolve() == CONF else sorted(path.relative_to(CONF) for path in CONF.rglob("*.yaml"))
    for name in names:
        if (folder / name).exists():
            raise ValueError(
                f"{folder / name} has the name of one of fedcomp's own, which would be taken instead: give it another, "
                f"such as {name.parent / f'my_{name.name}'}"
            )
    for package in NEEDED:
        if (folder / f"{package}.py").is_file():
            raise ValueError(
                f"{folder / package}.py has the name of a package that fedcomp needs, and would be taken instead: call "
                f"it otherwise, such as my_{package}.py"
            )


def compose_with_hydra(words: Sequence[str], folders: Sequence[Path]) -> DictConfig:
    """As `load`. Raises ValueError: as `compose`."""
    try:
        return load(words, folders)
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        raise ValueError(error_message(error, words, folders)) from error
