"""The folder of a run: outputs/<name>/<hash of its identity>/seed=<n>/.

`identity.json` beside the seeds has the identity that is hashed, for readers without fedcomp. Of two identities with
the same hash, the second one's folder is `<hash>-2`.

Earlier versions hashed the whole resolved config, class paths included (eight hex digits). A run of theirs with the
same identity is found by the `config.yaml` in its folder, and its folder is renamed.
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
from fedcomp.records.run_folder import CONFIG, IDENTITY, held

FORMER_HASH = re.compile("[0-9a-f]{8}")


def run_folder(config: Mapping[str, Any]) -> Path:
    """The folder of the run of this resolved config."""
    encoded = _encoded(config)
    for number in itertools.count(1):
        folder = _root(config) / (config_hash(config) + (f"-{number}" if number > 1 else ""))
        try:
            taken = (folder / IDENTITY).read_bytes() != encoded
        except OSError:  # a new folder
            taken = False
        if not taken:
            break
    return folder / f"seed={config['seed']}"


def claim(folder: Path, config: Mapping[str, Any]) -> None:
    """Write `identity.json` beside the run's folder. Raises ValueError if it cannot be written."""
    path = folder.parent / IDENTITY
    if not path.exists():
        write_atomically(path, _encoded(config))


def adopt_former(folder: Path, config: Mapping[str, Any]) -> Path | None:
    """Rename the folder that an earlier version gave to the run of this config to `folder`.

    Returns:
        The former folder; None if there is no such run, or if `folder` exists already.
    """
    if folder.exists():
        return None
    encoded = _encoded(config)
    for former in _former_folders(config):
        if _read(former / CONFIG) == encoded and not held(former):
            folder.parent.mkdir(parents=True, exist_ok=True)
            try:
                former.rename(folder)
            except OSError:  # another process of the same grid has renamed it
                return None
            if not any(former.parent.iterdir()):
                former.parent.rmdir()
            return former
    return None


def _root(config: Mapping[str, Any]) -> Path:
    return Path(str(config["output_root"])).expanduser() / str(config["name"])


def _former_folders(config: Mapping[str, Any]) -> Iterator[Path]:
    """Folders of this seed that were named by earlier versions."""
    root = _root(config)
    for parent in sorted(root.iterdir()) if root.is_dir() else ():
        if FORMER_HASH.fullmatch(parent.name) and (parent / f"seed={config['seed']}").is_dir():
            yield parent / f"seed={config['seed']}"


def _read(path: Path) -> bytes | None:
    """The identity of a config on disk; None if it cannot be read."""
    try:
        config = OmegaConf.to_container(OmegaConf.load(path))
    except (OSError, YAMLError, OmegaConfBaseException):
        return None
    return _encoded({str(key): value for key, value in config.items()}) if isinstance(config, dict) else None


def _encoded(config: Mapping[str, Any]) -> bytes:
    return (json.dumps(identity(config), indent=2, sort_keys=True, default=str) + "\n").encode()
