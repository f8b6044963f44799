"""The one training entry point: a composed config becomes a run in its folder."""

from __future__ import annotations

import contextlib
import logging
import math
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from fedcomp.config import schema
from fedcomp.config.factory import build, build_runner, build_simulation, pick_device
from fedcomp.config.placement import adopt_former, claim, run_folder
from fedcomp.config.schema import plain_config
from fedcomp.dataset.contract import Dataset
from fedcomp.display.partition_plot import plot_partition
from fedcomp.display.progress import Progress, describe
from fedcomp.distributed.context import ProcessContext, SingleProcess, torchrun_env
from fedcomp.model.precision import set_tf32
from fedcomp.partition.summary import entropy_in_words, label_counts, label_entropy
from fedcomp.provenance.check import FinishedRuns, RunInputs, SessionProvenance, run_inputs, session_provenance
from fedcomp.records.atomic_write import write_atomically
from fedcomp.records.metrics_file import Line
from fedcomp.records.provenance import differences
from fedcomp.records.reader import RunFiles
from fedcomp.records.run_folder import CHECKPOINT, CONFIG, LOG, PARTITION, clear, owned
from fedcomp.records.status import State, Status, read_status, write_status
from fedcomp.run.error_location import first_line, is_in_code, located
from fedcomp.run.follower import Follower
from fedcomp.run.session import Session
from fedcomp.runtime.determinism import set_determinism
from fedcomp.runtime.malloc import keep_freed_memory
from fedcomp.runtime.signals import restore_sigint
from fedcomp.simulation.async_metrics import SyncReader, reader_for
from fedcomp.simulation.autotune.conv_autotune import FILE as PLAN
from fedcomp.simulation.autotune.conv_autotune import ConvPlan, plan_convolutions
from fedcomp.simulation.simulation import Simulation
from fedcomp.tracking.contract import Jsonl, RunInfo

log = logging.getLogger("fedcomp")


def train(config: DictConfig, processes: ProcessContext | None = None) -> list[Line]:
    """Run what `config` describes, resume it, or return its record at once if it is finished.

    Args:
        processes: the processes of the run; None: this one alone. All but the main process return no lines.
    Raises:
        ValueError: something in the config cannot be; one line says what, what is allowed and what to do.
        Interrupted: a signal stopped the run; its state is saved.
    """
    schema.check(config)
    processes = processes or SingleProcess()
    if config.repeats > 1 and not isinstance(processes, SingleProcess):
        raise ValueError(f"repeats={config.repeats} runs in one process: leave torchrun out, or give repeats=1")
    device = pick_device(config.device)
    plain = plain_config(config, device)
    folder, device = run_folder(plain), processes.device(device)
    if not processes.is_main_process:
        return _follow(config, plain, device, processes)
    verbosity = "quiet" if config.quiet else "verbose" if config.verbose else "normal"
    former = adopt_former(folder, plain)
    with owned(folder), Progress(verbosity) as progress:
        claim(folder, plain)
        if former is not None:
            progress.note(f"this run was in {former}: renamed to {folder}")
        if config.overwrite:
            clear(folder)
        done = RunFiles(folder).finished(config.rounds, config.eval_every, config.repeats)
        if done is not None:
            remark = FinishedRuns(lambda _: build(config.dataset)).check(folder, plain)
        if processes.broadcast_object(done is not None):
            assert done is not None
            update_label(folder / CONFIG, plain)
            if remark is not None:
                progress.note(remark)
            progress.note(f"already finished: {describe(done[-1])}  (overwrite=true runs it again)")
            progress.note(f"record {'and pictures ' if config.pictures else ''}in {folder}")
            return done
        configure_torch(device, config.precision.name, config.deterministic)
        write_atomically(folder / CONFIG, OmegaConf.to_yaml(OmegaConf.create(plain)).encode())
        with located(folder / LOG), _log_file(folder), status_during_setup(folder):
            with processes.main_process_first():
                simulation, parts = build_simulation(config, device)
            found = run_inputs(plain, lambda: simulation.dataset)
            processes.broadcast_object(found)
            simulation = processes.distribute(simulation, config.chunk_size, config.threads)
            begun = _begin(folder, plain, found, simulation)
            simulation, plan = _planned(simulation, config, folder, processes)
            rounds = build_runner(simulation, config)
            counts = _label_counts(simulation.dataset, parts)
            _draw_partition(simulation.dataset, counts, config, folder)
            tracker = build(config.tracker)
        restore_sigint()  # which the session hears, and saves
        facts, note = _facts(simulation, counts), _note(progress)
        info = RunInfo(folder, config.name, folder.parent.name, config.seed, plain, facts, note)
        often, alone = (
            (config.eval_every, config.checkpoint_every),
            config.repeats == 1 and isinstance(processes, SingleProcess),
        )
        reader = reader_for(device) if alone else SyncReader()
        session = Session(rounds, info, tracker, progress, *often, config.pictures, processes, reader, begun.start)
        with located(folder / LOG), _log_file(folder), begun:
            for line in begun.notes:
                note(line)
            log.info("run %s on %s, %d parameters", folder, device, simulation.model.dim)
            if counts.shape[1] > 1:
                log.info(entropy_in_words(counts))
            if simulation.dtype is torch.float64:
                note("dtype=float64: clients compute in it; messages, and the state between rounds, are float32")
            shared = processes.describe_split(simulation)
            if shared is not None:
                note(shared)
            if plan is not None:
                (note if config.verbose else log.info)(str(plan))
            lines = session.run()
        progress.note(f"record {'and pictures ' if config.pictures else ''}in {folder}")
        return lines


def _follow(config: DictConfig, plain: dict[str, Any], device: torch.device, processes: ProcessContext) -> list[Line]:
    """Compute the main process's rounds, and write nothing."""
    if processes.broadcast_object(None):  # the main process found that the run is finished
        return []
    configure_torch(device, config.precision.name, config.deterministic)
    with processes.main_process_first():
        simulation, _ = build_simulation(config, device)
    _check_same_inputs(run_inputs(plain, lambda: simulation.dataset), processes.broadcast_object(None))
    simulation = processes.distribute(simulation, config.chunk_size, config.threads)
    folder = run_folder(plain)
    simulation, _ = _planned(simulation, config, folder, processes)
    info = RunInfo(folder, config.name, folder.parent.name, config.seed, plain)
    with Progress("quiet") as progress:
        rounds, often = build_runner(simulation, config), (config.eval_every, config.checkpoint_every)
        return Follower(rounds, info, Jsonl(), progress, *often, processes=processes).run()


def configure_torch(device: torch.device, precision: str, deterministic: bool) -> None:
    """Sets torch's process-wide options."""
    if device.type == "cpu":
        torch.set_num_threads(1)  # threads share chunks of clients instead: runtime/workers.py
        keep_freed_memory()
    else:
        torch.cuda.set_device(device.index or 0)  # where kernels and graphs are launched
    set_tf32(precision, device)
    set_determinism(deterministic, device)


def _planned(
    simulation: Simulation, config: DictConfig, folder: Path, processes: ProcessContext
) -> tuple[Simulation, ConvPlan | None]:
    """The simulation with its plan, which the main process makes: all processes must compute alike."""
    plan: ConvPlan | None = None
    if processes.is_main_process:
        most = math.ceil(float(simulation.participation.inclusion(config.num_clients).sum()))
        options = config.client.batch_size, most, config.chunk_size is not None, folder / PLAN
        plan = plan_convolutions(simulation, config.plan, *options)
    plan = processes.broadcast_object(plan)
    return (simulation if plan is None else plan.applied_to(simulation)), plan


def _begin(folder: Path, plain: dict[str, Any], found: RunInputs, simulation: Simulation) -> SessionProvenance:
    """The session's own part of `provenance.json`. Raises ValueError: data or code are not what the run began with."""
    place = torchrun_env()
    counts = {"threads": simulation.workers.num, "processes": place.size if place is not None else 1}
    resumes = any(folder.glob(f"{Path(CHECKPOINT).stem}*"))  # or the one before
    return session_provenance(folder, plain, found, resumes, simulation.device, **counts)


def _check_same_inputs(mine: RunInputs, main: RunInputs) -> None:
    """Raise ValueError unless this process reads what process 0 reads, which may be on another machine."""
    for what, own, its in (("data", mine.data, main.data), ("code", mine.code, main.code)):
        for difference in differences(its, own):
            raise ValueError(
                f"{what} on {socket.gethostname()} are not those of process 0: {difference}; give all machines the same"
            )


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

    if callable(handler):
        signal.signal(signal.SIGINT, hear)
    try:
        yield
    except BaseException as failure:
        state: State = "interrupted" if isinstance(failure, KeyboardInterrupt) else "failed"
        write_status(folder, Status(state, done, first_line(failure)))
        raise
    finally:
        signal.signal(signal.SIGINT, handler)


def update_label(path: Path, plain: dict[str, Any]) -> None:
    """Write the new `label` and `figures` into the config of a finished run, where reports read them."""
    kept = OmegaConf.load(path)
    assert isinstance(kept, DictConfig)
    new = {key: plain[key] for key in ("label", "figures")}
    if any(kept.get(key) != value for key, value in new.items()):
        write_atomically(path, OmegaConf.to_yaml(OmegaConf.merge(kept, new)).encode())


def _label_counts(dataset: Dataset, parts: list[torch.Tensor]) -> torch.Tensor:
    """[N, C] int64: samples of each class a client; C = 1 where samples have no classes."""
    classes = dataset.num_outputs if dataset.task == "classification" else 1
    labels = dataset.train.y.cpu() if classes > 1 else torch.zeros(len(dataset.train), dtype=torch.int64)
    return label_counts(parts, labels, classes)


def _draw_partition(dataset: Dataset, counts: torch.Tensor, config: DictConfig, folder: Path) -> None:
    if not config.pictures or (folder / PARTITION).exists():
        return
    rule = config.partition._target_.split(".")[-2]
    title = f"{dataset.name}, {rule}, {config.num_clients} clients"
    below = entropy_in_words(counts) if counts.shape[1] > 1 else ""
    plot_partition(counts.numpy(), folder / PARTITION, dataset.class_names, title, below)


def _facts(simulation: Simulation, counts: torch.Tensor) -> dict[str, float | int]:
    num_clients = len(simulation.shards.sizes)
    entropy = {"label_entropy": label_entropy(counts).mean().item()} if counts.shape[1] > 1 else {}
    return {
        "num_params": simulation.model.dim,
        "expected_participants": float(simulation.participation.inclusion(num_clients).sum()),
        "num_train_samples": len(simulation.dataset.train),
        "num_test_samples": len(simulation.dataset.test),
        **entropy,
    }


def _note(progress: Progress) -> Callable[[str], None]:
    """Shows a line and keeps it in `run.log`, which has it even if the run is quiet."""

    def note(text: str) -> None:
        log.info(text)
        progress.note(text)

    return note


class _log_file:
    """Sends the package's log to `run.log` while a run lasts."""

    def __init__(self, folder: Path) -> None:
        self._handler = logging.FileHandler(folder / LOG)
        self._handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))

    def __enter__(self) -> None:
        log.setLevel(logging.INFO)
        log.addHandler(self._handler)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            log.error("%s", error, exc_info=is_in_code(error))
        log.removeHandler(self._handler)
        self._handler.close()
