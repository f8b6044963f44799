"""The folder of a run: outputs/<name>/<hash of its identity>/seed=<n>/.

`identity.json` beside the seeds has the identity that is hashed, for readers without fedcomp. Of two identities with
the same hash, the second one's folder is `<hash>-2`.
"""

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedcomp.config.identity import config_hash, hash_of, identity
from fedcomp.core.choices import Plain, run_options
from fedcomp.core.parse import parse_json
from fedcomp.core.validate import check_folder_name, check_seed
from fedcomp.records.atomic_write import write_atomically
from fedcomp.records.reader import RunFiles
from fedcomp.records.run_folder import IDENTITY
from fedcomp.records.status import Status

BESIDES = ("eval_every", "record_traffic", "codec_error", "wire")
"""Keys of a run that change what it records and no number of it."""


def run_folder(config: Mapping[str, Any]) -> Path:
    """The folder of the run of this resolved config, which may be of a run from elsewhere.

    Raises ValueError: its name or its seed is none, or an `identity.json` on the way is damaged.
    """
    check_folder_name("name", str(config["name"]))
    check_seed("seed", config["seed"])
    encoded, root = _encoded(config), Path(str(config["output_root"])).expanduser() / str(config["name"])
    for number in itertools.count(1):
        folder = root / (config_hash(config) + (f"-{number}" if number > 1 else ""))
        if not _taken(folder / IDENTITY, encoded):
            break
    return folder / f"seed={config['seed']}"


def _taken(path: Path, encoded: bytes) -> bool:
    """Whether another identity with the same hash is in this file. Raises ValueError: the file is damaged."""
    try:
        found = path.read_bytes()
    except OSError:  # a new folder
        return False
    if found == encoded:
        return False
    try:
        other = parse_json(found)
    except ValueError:
        other = None
    if hash_of(other) != path.parent.name.partition("-")[0]:
        raise ValueError(
            f"{path} is damaged: it is not the identity that its folder is named after; delete it, and the same "
            "command goes on with the run"
        )
    return True


def claim(folder: Path, config: Mapping[str, Any]) -> None:
    """Write `identity.json` beside the run's folder. Raises ValueError if it cannot be written."""
    path = folder.parent / IDENTITY
    if not path.exists():
        write_atomically(path, _encoded(config))


def near_twin(folder: Path, config: Mapping[str, Any]) -> str | None:
    """A line on an unfinished run that differs from this new one by BESIDES alone; None: there is none.

    Args:
        folder: of the new run. config: its resolved config.
    """
    defaults = run_options()
    for files, other, differing, now in _others(folder, config):
        if now.state != "finished" and now.round and differing <= set(BESIDES):
            words = " ".join(f"{key}={other.get(key, defaults[key])}".lower() for key in sorted(differing))
            return (
                f"{files.folder} is unfinished after round {now.round} and differs only in what is recorded: to go on "
                f"with it, stop this one and give {words}"
            )
    return None


def shorter_twin(folder: Path, config: Mapping[str, Any]) -> RunFiles | None:
    """The finished run with the most rounds that differs from this one by fewer `rounds` alone; None: there is none.

    Args: as `near_twin`.
    """
    found = [
        (now.round, files)
        for files, _, differing, now in _others(folder, config)
        if now.state == "finished" and differing == {"rounds"} and 0 < now.round < config["rounds"]
    ]
    return max(found, key=lambda one: one[0])[1] if found else None


def _others(folder: Path, config: Mapping[str, Any]) -> Iterator[tuple[RunFiles, Plain, set[str], Status]]:
    """Runs of the same name and seed that no process holds: identity, the keys that differ from it, and status."""
    own = identity(config)
    for file in sorted(folder.parent.parent.glob(f"*/{IDENTITY}")):
        files = RunFiles(file.parent / folder.name)
        try:
            other, now = parse_json(file.read_bytes()), files.status()
        except (OSError, ValueError):
            continue
        if not isinstance(other, dict) or now is None or files.held:
            continue
        differing = {key for key in {*own, *other} if own.get(key) != other.get(key)}
        if differing:
            yield files, other, differing, now


def _encoded(config: Mapping[str, Any]) -> bytes:
    return (json.dumps(identity(config), indent=2, sort_keys=True, default=str) + "\n").encode()
