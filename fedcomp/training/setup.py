"""What a run writes into its folder before its first round: config, log, picture of the partition, provenance.

As with `writer.py`, all processes of a run call the same methods, and only those of the main process do something.
"""

import contextlib
import logging
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

import torch
from omegaconf import DictConfig, OmegaConf

from fedcomp.algorithm.contract import Algorithm
from fedcomp.config.instantiate import build_part
from fedcomp.core.folders import part_name
from fedcomp.dataset.contract import Dataset
from fedcomp.display.figure import can_draw
from fedcomp.display.partition_plot import plot_partition
from fedcomp.model.contract import AnyModel, num_frozen
from fedcomp.partition.summary import entropy_in_words, label_counts, label_entropy
from fedcomp.provenance.check import RunInputs, SessionProvenance, session_provenance
from fedcomp.provenance.checked import unchecked
from fedcomp.records.atomic_write import write_atomically
from fedcomp.records.run_folder import CHECKPOINT, CONFIG, LOG, PARTITION
from fedcomp.records.status import Status, read_status, write_status
from fedcomp.runtime.bfloat16 import VARIABLE
from fedcomp.runtime.signals import can_handle_signals
from fedcomp.simulation.autotune.plan import Plan
from fedcomp.simulation.lone_samples import lone_samples_note
from fedcomp.simulation.simulation import Simulation
from fedcomp.tracking.contract import Tracker
from fedcomp.training.error_location import is_in_code, located, summary
from fedcomp.training.place import RunPlace
from fedcomp.training.session_forms import where_in_words
from fedcomp.training.writer import FolderWriter, Writer

log = logging.getLogger("fedcomp")


class RunSetup:
    """Reads and writes nothing: the set-up of every process but the main one."""

    def building(self) -> contextlib.AbstractContextManager[None]:
        """Context manager around building the simulation: log file, status, and the place of an error in code."""
        return contextlib.nullcontext()

    def writer(
        self, inputs: RunInputs, simulation: Simulation, parts: list[torch.Tensor], bfloat16: str | None
    ) -> Writer:
        """The session's writer, once the inputs are compared with those that the run began with.

        Args:
            parts: each client's sample numbers. bfloat16: what is known of its products; None: there are none.
        Raises:
            ValueError: data or code are not those that the run began with.
        """
        return Writer()

    def running(
        self, simulation: Simulation, split: str | None, plan: Plan | None
    ) -> contextlib.AbstractContextManager[None]:
        """Context manager around the session. `split`: how work is split over processes; `plan`: of convolutions."""
        return contextlib.nullcontext()


class FolderSetup(RunSetup):
    """Sets up a run in its folder, which this process holds. `place`: the folder, and the run's config."""

    def __init__(self, place: RunPlace) -> None:
        self._config, self._plain, self._path = place.config, place.plain, place.path
        self._place, self._progress = place, place.progress

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        write_atomically(self._path / CONFIG, OmegaConf.to_yaml(OmegaConf.create(self._plain)).encode())
        with located(self._path / LOG), status_during_setup(self._path), _log_file(self._path, self._progress.note):
            yield

    def writer(
        self, inputs: RunInputs, simulation: Simulation, parts: list[torch.Tensor], bfloat16: str | None
    ) -> FolderWriter:
        counts = simulation.workers.num, simulation.group.size
        resumes = any(self._path.glob(f"{Path(CHECKPOINT).stem}*"))  # or the one before
        self._begun: SessionProvenance = session_provenance(
            self._path, self._plain, inputs, resumes, simulation.device, bfloat16, *counts
        )
        self._begun.unused = _unused(simulation.algorithm)
        config, path, dataset = self._config, self._path, simulation.dataset
        self._counts = _label_counts(dataset, parts)
        pictures = config.pictures and can_draw()
        if config.pictures and not pictures:
            self._progress.note("no pictures: matplotlib is not installed (pictures=false leaves them out)")
        if pictures and not (path / PARTITION).exists():
            _draw_partition(dataset, self._counts, config, path / PARTITION)
        tracker = build_part(config.tracker, Tracker)
        info = replace(self._place.info(_facts(simulation, self._counts)), note=self._note)
        return FolderWriter(info, tracker, self._progress, pictures, self._begun.start)

    @contextlib.contextmanager
    def running(self, simulation: Simulation, split: str | None, plan: Plan | None) -> Iterator[None]:
        with located(self._path / LOG), _log_file(self._path, self._progress.note), self._begun:
            for line in (*self._begun.notes, *unchecked(self._plain)):
                self._note(line)
            if (found := self._begun.session.bfloat16) is not None:
                (self._note if VARIABLE in found else log.info)(f"bfloat16 products: {found}")
            log.info("run %s", self._path)
            self._note(where_in_words(simulation, self._config.precision.name))
            for line in _sizes_in_words(simulation.model):
                self._note(line)
            if (lone := lone_samples_note(simulation)) is not None:
                self._note(lone)
            if self._counts.shape[1] > 1:
                log.info(entropy_in_words(self._counts))
            if simulation.dtype is torch.float64:
                self._note("dtype=float64: clients compute in it; messages, and the state between rounds, are float32")
            if split is not None:
                self._note(split)
            if plan is not None:
                (self._note if self._config.verbose else log.info)(str(plan))
            yield

    def _note(self, text: str) -> None:
        """Show a line and keep it in `run.log`, which has it even if the run is quiet."""
        log.info(text)
        self._progress.note(text)


@contextlib.contextmanager
def status_during_setup(folder: Path) -> Iterator[None]:
    """Within the block `status.json` says that the run is starting; if setting it up fails, why."""
    before = read_status(folder)
    done = before.round if before is not None else 0
    write_status(folder, Status("running", done))
    handler = signal.getsignal(signal.SIGINT)

    def hear(number: int, frame: FrameType | None) -> None:
        write_status(folder, Status("interrupted", done, "before the first round"))
        assert callable(handler)
        handler(number, frame)

    heard = callable(handler) and can_handle_signals()
    if heard:
        signal.signal(signal.SIGINT, hear)
    try:
        yield
    except BaseException as failure:
        if isinstance(failure, KeyboardInterrupt):
            write_status(folder, Status("interrupted", done, "before the first round"))
        else:
            write_status(folder, Status("failed", done, summary(failure)))
        raise
    finally:
        if heard:
            signal.signal(signal.SIGINT, handler)


def _sizes_in_words(model: AnyModel) -> Iterator[str]:
    """A line of how many numbers are trained, frozen and statistics; one more where there are more statistics."""
    frozen = num_frozen(model)
    share = f"; {100 * model.dim / (model.dim + frozen):.3g} % of the whole model are trained" if frozen else ""
    yield f"model: {model.dim:,} trained numbers, {frozen:,} frozen, {model.num_stats:,} statistics{share}"
    if model.num_stats > model.dim:
        yield (
            "warning: the model's statistics, its floating-point buffers, outnumber its trained parameters and are "
            "sent with them: make those that never change parameters with requires_grad=False, which are not sent"
        )


def _label_counts(dataset: Dataset, parts: list[torch.Tensor]) -> torch.Tensor:
    """[N, C] int64: samples of each class a client; C = 1 where samples have no classes."""
    if dataset.labels is None:
        return label_counts(parts, torch.zeros(len(dataset.train), dtype=torch.int64), 1)
    return label_counts(parts, dataset.labels, dataset.num_outputs)


def _draw_partition(dataset: Dataset, counts: torch.Tensor, config: DictConfig, path: Path) -> None:
    rule = part_name(config.partition._target_)
    title = f"{dataset.name}, {rule}, {len(counts)} clients"
    below = entropy_in_words(counts) if counts.shape[1] > 1 else ""
    plot_partition(counts.numpy(), path, dataset.class_names, title, below)


def _facts(simulation: Simulation, counts: torch.Tensor) -> dict[str, float | int]:
    entropy = {"label_entropy": label_entropy(counts).mean().item()} if counts.shape[1] > 1 else {}
    return {
        "num_params": simulation.model.dim,
        "expected_participants": simulation.expected_cohort,
        "num_train_samples": len(simulation.dataset.train),
        "num_test_samples": len(simulation.dataset.test),
        **entropy,
    }


class _Notes(logging.Handler):
    """Shows what is logged with `extra={"note": True}`."""

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__()
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "note", False):
            self._show(record.getMessage())


class _FileHandler(logging.FileHandler):
    """Writes `run.log`. Where the disk is full it writes nothing: the run's own error says so."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()


@contextlib.contextmanager
def _log_file(folder: Path, show: Callable[[str], None]) -> Iterator[None]:
    """Within the block the package's log goes to `run.log`, and its notes to the console too."""
    file, notes = _FileHandler(folder / LOG), _Notes(show)
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.setLevel(logging.INFO)
    log.addHandler(file)
    log.addHandler(notes)
    try:
        yield
    except BaseException as error:
        log.error("%s", error, exc_info=is_in_code(error))
        raise
    finally:
        log.removeHandler(file)
        log.removeHandler(notes)
        file.close()


def _unused(algorithm: Algorithm) -> tuple[str, ...]:
    """As in `Provenance`."""
    fields = {"compressor": "uplink", "downlink": "downlink"}
    return tuple(folder for folder, field in fields.items() if field not in algorithm.compressors)
