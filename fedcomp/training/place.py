"""A run's folder before anything is built: who holds it, and whether the run is finished. Imports no torch.

A grid asks this of every one of its runs, again each time that it is started, and torch takes seconds to import.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from fedcomp.config.identity import config_hash
from fedcomp.config.instantiate import build, build_part
from fedcomp.config.placement import claim, near_twin, run_folder
from fedcomp.config.schema import plain_config
from fedcomp.display.progress import Progress, describe
from fedcomp.provenance.check import FinishedRuns
from fedcomp.records.atomic_write import write_atomically
from fedcomp.records.metrics_file import Line
from fedcomp.records.reader import RunFiles
from fedcomp.records.run_folder import CONFIG, CURVE, IDENTITY, clear, owned
from fedcomp.runtime.device_name import device_name
from fedcomp.tracking.contract import RunInfo, Tracker


class RunPlace:
    """The place of a run: its config, its folder, and the lines that its user sees.

    Args:
        config: of the run.

    Attributes:
        plain: the config as plain values. path: of the folder. progress: what is shown.
    """

    def __init__(self, config: DictConfig) -> None:
        self.config, self.plain = config, plain_config(config, device_name(config.device))
        self.path = run_folder(self.plain)
        self.progress = Progress("quiet" if config.quiet else "verbose" if config.verbose else "normal")

    @contextlib.contextmanager
    def held(self) -> Iterator[list[Line] | None]:
        """Context manager: holds the folder. Its value: the record of a run that is finished, else None.

        Raises ValueError: another process holds it; or the run is finished, but its data or code have changed since.
        """
        path, progress = self.path, self.progress
        with owned(path), progress:
            claim(path, self.plain)
            if self.config.overwrite:
                clear(path)
            finished = self._finished()
            if finished is None and not RunFiles(path).begun and (twin := near_twin(path, self.plain)) is not None:
                progress.note(twin)
            yield finished
            drawn = (path / CURVE).exists()  # a run that is skipped may have been made with pictures=false
            progress.note(f"record {'and pictures ' if drawn else ''}in {path}")

    def info(self, facts: Mapping[str, float | int]) -> RunInfo:
        """What a tracker learns of the run. `facts`: numbers that follow from the config."""
        config, path = self.config, self.path
        return RunInfo(path, config.name, path.parent.name, config.seed, self.plain, facts, self.progress.note)

    def _finished(self) -> list[Line] | None:
        config = self.config
        done = RunFiles(self.path).finished(config)
        if done is None:
            return None
        origin = self.path.parent.with_name(config_hash(RunFiles(self.path).written_config()))
        if origin.name != config_hash(self.plain) and (origin / IDENTITY).exists():  # not only of an earlier version
            raise ValueError(
                f"{self.path} is a run of other options ({CONFIG}), moved or copied from {origin}: move it back there, "
                "or start anew with overwrite=true"
            )
        remark = FinishedRuns(lambda _: build(config.dataset)).check(self.path, self.plain)
        update_label(self.path, self.plain)
        if remark is not None:
            self.progress.note(remark)
        self.progress.note(f"already finished: {describe(done[-1])}  (overwrite=true runs it again)")
        tracker = build_part(config.tracker, Tracker)
        if tracker.lacks(self.path):
            tracker.start(self.info({}))
            tracker.finish("finished", done[-1])
        return done


def update_label(folder: Path, plain: dict[str, Any]) -> None:
    """Write the new `label` and `figures` into the config of a finished run, where reports read them."""
    kept = RunFiles(folder).written_config()
    new = {key: plain[key] for key in ("label", "figures")}
    if any(kept.get(key) != value for key, value in new.items()):
        write_atomically(folder / CONFIG, OmegaConf.to_yaml(OmegaConf.create(kept | new)).encode())
