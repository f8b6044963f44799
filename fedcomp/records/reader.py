"""Reading runs that others wrote: which folders hold one, and what its files say.

Reports, `fedcomp-status` and the question whether a run is finished already all read runs through here. Each file is
read when it is asked for: a status needs a record's last line, a report all lines.
"""

import errno
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcomp.records import metrics_file, provenance, status
from fedcomp.records.digests import check_unchanged
from fedcomp.records.grid import MANIFEST
from fedcomp.records.metrics_file import REPETITIONS, Line, PerRepetition, check_complete
from fedcomp.records.provenance import Provenance
from fedcomp.records.run_folder import CONFIG, held
from fedcomp.records.status import Status

WHOLE = {"rounds": 1, "eval_every": 1, "seed": 0}
"""{key of a config that readers count with: its least value}."""


@dataclass(frozen=True)
class RunFiles:
    """The files of one run, in its `folder`. Every call reads anew."""

    folder: Path

    @property
    def seed(self) -> int | None:
        """The n of a folder `seed=<n>`; None: it has another name."""
        match = re.fullmatch(r"seed=(\d+)", self.folder.name)
        return int(match[1]) if match else None

    @property
    def begun(self) -> bool:
        """Whether the run has written its status."""
        return (self.folder / status.FILE).exists()

    @property
    def held(self) -> bool:
        """Whether a process works on the run."""
        return held(self.folder)

    def config(self) -> dict[str, Any] | None:
        """The resolved config, classes without their rooms (`without_rooms`); None: there is none yet.

        Raises ValueError: the file cannot be read, is no YAML mapping, or is another program's.
        """
        written = self._written()
        return None if written is None else without_rooms(written)

    def existing_config(self) -> dict[str, Any]:
        """As `config`. Raises as `written_config`."""
        return without_rooms(self.written_config())

    def written_config(self) -> dict[str, Any]:
        """The resolved config as it is written, classes with their rooms, from which parts may be built.

        Raises ValueError: there is no such folder, it holds no run, a value is a reference, or as `config`.
        """
        if not self.folder.is_dir():
            raise ValueError(f"there is no folder {self.folder}")
        config = self._written()
        if config is None:
            raise ValueError(
                f"{self.folder} is no run's folder: it has no {CONFIG}; a run's is <output_root>/<name>/<hash>/seed=<n>"
            )
        if "${" in str(config):  # a reference may stand for code
            raise ValueError(f"{self.folder / CONFIG} is no config of a run: a run writes no reference, ${{...}}")
        return config

    def _written(self) -> dict[str, Any] | None:
        from fedcomp.core.parse import parse_yaml

        path = self.folder / CONFIG
        try:
            config = parse_yaml(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ValueError(f"cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            raise ValueError(f"{path} is no YAML of a run: {error}") from error
        if not isinstance(config, dict):
            raise ValueError(f"{path} is no config: it must be a mapping")
        for key, least in WHOLE.items():
            value = config.get(key, least)
            if type(value) is not int or not least <= value < 2**63:
                raise ValueError(
                    f"{path} is no config of a run: {key} is {value!r}, but must be a whole number of {least} or more, "
                    "below 2^63"
                )
        if not isinstance(dataset := config.get("dataset") or {}, dict):
            raise ValueError(f"{path} is no config of a run: dataset is {dataset!r}, but must be a mapping")
        return config

    def status(self) -> Status | None:
        """How far the run is; None: it has written none yet. Raises ValueError: the file is no status."""
        return status.read_status(self.folder)

    def lines(self) -> list[Line]:
        """Every evaluation, without a half-written last line; [] if there is no record. Raises ValueError: broken."""
        return metrics_file.read_lines(self.folder / metrics_file.FILE)

    def latest(self) -> tuple[Line, float | None]:
        """The last evaluation ({}: none), and the best test accuracy so far, a fraction (None: none). Fast.

        Raises ValueError: the record cannot be read, or its last line is none.
        """
        return metrics_file.read_latest(self.folder / metrics_file.FILE)

    def repetitions(self) -> dict[int, PerRepetition]:
        """{round: {metric: one value a repetition}}; {} for a run without repetitions. Raises ValueError: broken."""
        return metrics_file.read_repetitions(self.folder)

    def provenance(self) -> Provenance | None:
        """What the run was made of; None if it keeps none. Raises ValueError: the file cannot be understood."""
        return provenance.read_provenance(self.folder)

    def unused(self) -> tuple[str, ...]:
        """As in `Provenance`; () if that is not known."""
        try:
            known = self.provenance()
        except ValueError:
            return ()
        return known.unused if known is not None else ()

    def finished(self, config: Mapping[str, Any]) -> list[Line] | None:
        """The record, if the run of this config ended well; None if there is still something to do.

        With `max_bits` it may have ended before its last round.

        Raises:
            ValueError: status or record is broken; or a line is missing or changed, so that the run is no result; or
                it is the run of another seed, whose folder was copied or renamed.
        """
        self._check_seed()
        now, path = self.status(), self.folder / metrics_file.FILE
        if now is None or now.state != "finished":
            return None
        rounds, eval_every, lines = now.round, config["eval_every"], self.lines()
        if rounds != config["rounds"] and config.get("max_bits") is None:
            return None
        if not lines or lines[-1]["round"] != rounds:
            raise ValueError(
                f"the run is finished, but {path} has no line of its last round {rounds}: put the file back, or run "
                f"again with overwrite=true"
            )
        check_complete(path, [int(line["round"]) for line in lines], rounds, rounds, eval_every)
        if config.get("repeats", 1) > 1:
            check_complete(self.folder / REPETITIONS, self.repetitions(), rounds, rounds, eval_every)
        check_unchanged(self.folder, now.record)
        return lines

    def _check_seed(self) -> None:
        try:
            written = (self._written() or {}).get("seed", self.seed)
        except ValueError:  # a run that goes on writes its config anew
            return
        if self.seed not in (None, written):
            raise ValueError(
                f"{self.folder} is a copy of the run of seed {written} ({CONFIG}): call it seed={written}, or start "
                "anew with overwrite=true"
            )


@dataclass(frozen=True)
class RecordedRun:
    """One run, read whole.

    Attributes:
        folder: where it lies.
        config: its resolved config; empty if unreadable.
        seed: from the config, else from the folder's name `seed=<n>`, else None.
        state: finished, running (also: killed), failed, interrupted; `unreadable` if its files cannot be understood.
        error: one line for a failed or unreadable run.
        lines: its evaluations, in order of rounds.
    """

    folder: Path
    config: dict[str, Any]
    seed: int | None
    state: str
    error: str | None = None
    lines: list[Line] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        """Whether it may stand in a table: it went to its end and was evaluated."""
        return self.state == "finished" and bool(self.lines)

    @property
    def files(self) -> RunFiles:
        """What else the run left."""
        return RunFiles(self.folder)


def read_run(files: RunFiles) -> RecordedRun:
    """The run of these files; what cannot be understood makes it `unreadable`, nothing is raised."""
    try:
        config = files.config()
        if config is None:
            raise ValueError(f"cannot read {files.folder / CONFIG}: {os.strerror(errno.ENOENT)}")
        lines, now = files.lines(), files.status()
        if now is not None and now.state == "finished" and lines and {"rounds", "eval_every"} <= config.keys():
            found = [int(line["round"]) for line in lines]
            path = files.folder / metrics_file.FILE
            check_complete(path, found, now.round, config["rounds"], config["eval_every"])
            check_unchanged(files.folder, now.record)
    except ValueError as unreadable:
        return RecordedRun(files.folder, {}, files.seed, "unreadable", str(unreadable))
    state, error = (now.state, now.error) if now is not None else ("running", None)
    return RecordedRun(files.folder, config, config.get("seed", files.seed), state, error, lines)


def read_runs(paths: Iterable[str | Path]) -> list[RecordedRun]:
    """Every run in or below the folders, each once, in the order of their paths.

    Raises ValueError: a path does not exist, or there is no run under any of them.
    """
    roots = [Path(path) for path in paths]
    found = find_runs(roots).runs
    if not found:
        listed = ", ".join(map(str, roots))
        raise ValueError(f"no run found under {listed}: a run is a folder that holds {metrics_file.FILE}")
    return [read_run(files) for files in found.values()]


@dataclass(frozen=True)
class FoundRuns:
    """What lies below some folders, in the order of the paths.

    Attributes:
        runs: {resolved path: a folder that holds a status or a record, whatever became of the run, or that cannot be
            listed, as without permission: reading it says why}.
        grids: folders of grids.
    """

    runs: dict[Path, RunFiles]
    grids: list[Path]


def find_runs(roots: Iterable[Path]) -> FoundRuns:
    """Every run in or below the folders, each once. Hidden folders are left out.

    Raises ValueError: there is no such folder.
    """
    runs: dict[Path, RunFiles] = {}
    grids: list[Path] = []

    def unlisted(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # it was removed meanwhile
            runs.setdefault(Path(error.filename).resolve(), RunFiles(Path(error.filename)))

    for root in roots:
        if not root.is_dir():
            raise ValueError(f"{root} is no folder; give the folder of one run, or one that holds runs (outputs/)")
        for name, inner, files in os.walk(root, onerror=unlisted):
            folder = Path(name)
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            if metrics_file.FILE in files or status.FILE in files:
                runs.setdefault(folder.resolve(), RunFiles(folder))
            if MANIFEST in files:
                grids.append(folder)
                inner.clear()  # logs
    return FoundRuns(runs, grids)


def without_rooms(config: Any) -> Any:
    """The config with fedcomp's classes named without the rooms they lie in, which differ from version to version."""
    if isinstance(config, Mapping):
        return {
            key: _without_rooms(value) if key == "_target_" else without_rooms(value) for key, value in config.items()
        }
    return [without_rooms(value) for value in config] if isinstance(config, list) else config


def _without_rooms(target: Any) -> Any:
    path = str(target).split(".")
    return ".".join(["fedcomp", *path[-2:]]) if path[0] == "fedcomp" and len(path) > 2 else target
