"""A run that is not finished yet: torch's settings, the simulation, the session. `train` calls it."""

from __future__ import annotations

import math
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from omegaconf import DictConfig

from fedcomp.config.effects import check_effects
from fedcomp.config.factory import build_recorder, build_runner, build_simulation
from fedcomp.distributed.context import ProcessContext, check_enough_work
from fedcomp.model.contract import TaskModel, frozen_of, tensors_of
from fedcomp.model.precision import set_tf32
from fedcomp.network.traffic.recorder import TrafficRecorder
from fedcomp.provenance.check import RunInputs, run_inputs
from fedcomp.records.metrics_file import Line
from fedcomp.records.provenance import differences
from fedcomp.records.run_folder import CHECKPOINT
from fedcomp.runtime.bfloat16 import check_bfloat16
from fedcomp.runtime.gpu import check_gpu, why_no_gpu
from fedcomp.runtime.process_settings import keep_freed_memory, pick_device, set_determinism
from fedcomp.runtime.signals import restore_sigint
from fedcomp.simulation.async_metrics import SyncReader, reader_for
from fedcomp.simulation.autotune.conv_autotune import FILE as PLAN
from fedcomp.simulation.autotune.conv_autotune import ConvPlan, plan_convolutions
from fedcomp.simulation.cuda_graphs.fused_loop import loop_runner_on
from fedcomp.simulation.monte_carlo.study import MonteCarloStudy
from fedcomp.simulation.round_result import RoundRunner
from fedcomp.simulation.simulation import Simulation
from fedcomp.training.device_errors import in_one_line, run_in_memory
from fedcomp.training.hardly_learnt import chance, hardly_learnt
from fedcomp.training.place import RunPlace
from fedcomp.training.session import Session
from fedcomp.training.session_forms import forms_of_run, rehearse
from fedcomp.training.setup import FolderSetup, RunSetup


def run(place: RunPlace, processes: ProcessContext) -> list[Line]:
    """Start or resume the run in its folder, which the main process holds. Arguments, result and errors of `train`."""
    config, device = place.config, _device(place, processes)
    configure_torch(device, config.precision.name, config.deterministic)
    with forms_of_run(config.safe, device, place.path, processes):
        return _run(place, processes, device)


def _device(place: RunPlace, processes: ProcessContext) -> torch.device:
    """The device of this process, on which torch computes. Raises ValueError: it does not."""
    config, device, missing = place.config, pick_device(place.config.device), why_no_gpu()
    if str(device) != place.plain["device"]:
        why = missing or "it finds none"
        raise ValueError(f"device={place.plain['device']}: torch cannot use the driver's GPU ({why}): take device=cpu")
    if config.device == "auto" and device.type == "cpu" and missing is not None:
        place.progress.note(f"device=auto computes on the CPU: {missing}")
    check_gpu(config.device, device)
    device = processes.device(device)
    check_gpu(config.device, device)
    if processes.size > 1 and device.type == "cuda" and not config.deterministic:
        raise ValueError("deterministic=false lets the states of several GPUs' processes part: leave it at true")
    return device


def _run(place: RunPlace, processes: ProcessContext, device: torch.device) -> list[Line]:
    config, plain, folder = place.config, place.plain, place.path
    alone = config.repeats == 1 and processes.size == 1
    setup = FolderSetup(place) if processes.is_main_process else RunSetup()
    with setup.building(), in_one_line():
        check_effects(config)
        bfloat16 = check_bfloat16() if device.type == "cpu" and config.precision.name == "bf16" else None
        with processes.main_process_first():
            simulation, parts = build_simulation(config, device)
        inputs = run_inputs(plain, lambda: simulation.dataset, frozen_of(simulation.model))
        _check_same_inputs(inputs, processes.broadcast_object(inputs))
        check_enough_work(len(simulation.shards.sizes), config.repeats, processes.size)
        simulation = processes.distribute(simulation, config.chunk_size, config.threads)
        setup.begin(inputs, simulation, bfloat16)
        simulation, plan = _planned(simulation, config, folder, processes)
        rehearse(simulation, processes)
        recorder = build_recorder(simulation, config)
        rounds = build_runner(simulation, config, spread=recorder is None)
        writer = setup.writer(simulation, parts)
    restore_sigint()  # which the session hears, and saves
    reader = reader_for(device) if alone else SyncReader()
    session = Session(
        rounds, writer, config.eval_every, config.checkpoint_every, processes, reader, recorder, config.max_bits
    )
    notes = simulation.algorithm.notes(tensors_of(simulation.model))
    for text in (*notes, *(() if recorder is None else recorder.notes)):
        writer.note(text)
    halved = partial(_halved, session, simulation, place, recorder)
    shown = setup.running(simulation, _split(rounds, processes, simulation), plan)
    with shown, in_one_line(simulation, config.client.batch_size):
        lines = run_in_memory(session, halved)
        if not isinstance(simulation.model, TaskModel):
            slow = hardly_learnt(lines, chance(simulation.dataset), simulation.algorithm.when_slow)
            if slow is not None:
                writer.note(slow)
        return lines


def _halved(
    session: Session, simulation: Simulation, place: RunPlace, recorder: TrafficRecorder | None
) -> Session | None:
    """The session with half as many clients at once, which is kept with the run's plan; None: with one, or too late."""
    config, path = place.config, place.path / PLAN
    begun = any(place.path.glob(f"{Path(CHECKPOINT).stem}*")) or any(line["round"] for line in session.writer.lines())
    before = min(ConvPlan.read(path).chunk_size, _most_clients(simulation)) if path.exists() else 1
    if begun or before == 1 or config.chunk_size is not None or session.processes.size > 1 or recorder is not None:
        return None
    plan = replace(ConvPlan.read(path), chunk_size=before // 2)
    plan.write(path)
    session.writer.note(f"out of memory with {before} clients at once: trying it with {plan.chunk_size}")
    smaller = replace(plan.applied_to(simulation), loop_runner=loop_runner_on(simulation.device, config.cuda_graphs))
    return replace(session, simulation=build_runner(smaller, config))


def _most_clients(simulation: Simulation) -> int:
    """The largest cohort to be expected."""
    return math.ceil(float(simulation.participation.inclusion(len(simulation.shards.sizes)).sum()))


def _split(rounds: RoundRunner, processes: ProcessContext, simulation: Simulation) -> str | None:
    """How the work is split, in one line for the user; None: it is not."""
    if isinstance(rounds, MonteCarloStudy) and rounds.group.size > 1:
        return f"{rounds.group.size} processes share {len(rounds.repetitions)} repetitions"
    return processes.describe_split(simulation)


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
        options = config.client.batch_size, _most_clients(simulation), config.chunk_size is not None, folder / PLAN
        plan = plan_convolutions(simulation, config.plan, *options)
    plan = processes.broadcast_object(plan)
    return (simulation if plan is None else plan.applied_to(simulation)), plan


def _check_same_inputs(mine: RunInputs, main: RunInputs) -> None:
    """Raise ValueError unless this process reads what process 0 reads, which may be on another machine."""
    for what, own, its in (("data", mine.data, main.data), ("code", mine.code, main.code)):
        for difference in differences(its, own):
            raise ValueError(
                f"{what} on {socket.gethostname()} are not those of process 0: {difference}; give all machines the same"
            )
