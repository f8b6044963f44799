"""Which folder a run lives in: outputs/<name>/<hash of what was chosen>/seed=<n>/.

`identity.json` beside the seeds says what the hash stands for, so that a folder is understood without fedcomp, and two
choices that happen to have one hash are told apart: the second lives in `<hash>-2`.

Earlier versions made the hash (eight hex digits) of the whole resolved config, class paths included. A run of theirs
that was chosen alike is found by the `config.yaml` in its folder, and its folder is renamed.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from fedcomp.config.identity import config_hash, identity
from fedcomp.records.atomic_write import write_atomically
from fedcomp.records.run_folder import CONFIG, held

IDENTITY = "identity.json"
FORMER = re.compile("[0-9a-f]{8}")


def run_folder(config: Mapping[str, Any]) -> Path:
    """Where the run of this resolved config lives."""
    chosen = _encoded(config)
    for number in itertools.count(1):
        folder = _root(config) / (config_hash(config) + (f"-{number}" if number > 1 else ""))
        try:
            taken = (folder / IDENTITY).read_bytes() != chosen
        except OSError:  # nobody has been here
            taken = False
        if not taken:
            break
    return folder / f"seed={config['seed']}"


def claim(folder: Path, config: Mapping[str, Any]) -> None:
    """Write beside the run's folder what its hash stands for. Raises ValueError: it cannot be written."""
    path = folder.parent / IDENTITY
    if not path.exists():
        write_atomically(path, _encoded(config))


def adopt_former(folder: Path, config: Mapping[str, Any]) -> Path | None:
    """Rename the folder of a run that an earlier version placed elsewhere to `folder`.

    Returns:
        the folder's former name; None: there is no such run, or `folder` is there already.
    """
    if folder.exists():
        return None
    chosen = _encoded(config)
    for former in _former(config):
        if _read(former / CONFIG) == chosen and not held(former):
            folder.parent.mkdir(parents=True, exist_ok=True)
            try:
                former.rename(folder)
            except OSError:  # another process of the same grid was faster
                return None
            if not any(former.parent.iterdir()):
                former.parent.rmdir()
            return former
    return None


def _root(config: Mapping[str, Any]) -> Path:
    return Path(str(config["output_root"])).expanduser() / str(config["name"])


def _former(config: Mapping[str, Any]) -> Iterator[Path]:
    """Folders of this seed whose names earlier versions gave."""
    root = _root(config)
    for parent in sorted(root.iterdir()) if root.is_dir() else ():
        if FORMER.fullmatch(parent.name) and (parent / f"seed={config['seed']}").is_dir():
            yield parent / f"seed={config['seed']}"


def _read(path: Path) -> bytes | None:
    """The identity of a config on disk; None: it cannot be read."""
    try:
        config = OmegaConf.to_container(OmegaConf.load(path))
    except (OSError, YAMLError, OmegaConfBaseException):
        return None
    return _encoded({str(key): value for key, value in config.items()}) if isinstance(config, dict) else None


def _encoded(config: Mapping[str, Any]) -> bytes:
    return (json.dumps(identity(config), indent=2, sort_keys=True, default=str) + "\n").encode()
