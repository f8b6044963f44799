"""What a run needs before its first round: torch's settings, the simulation, and who records and writes."""

import socket
from dataclasses import dataclass
from pathlib import Path

import torch
from omegaconf import DictConfig

from fedcomp.config.effects import check_effects
from fedcomp.config.factory import build_recorder, build_runner, build_simulation
from fedcomp.distributed.context import ProcessContext, check_enough_work
from fedcomp.model.contract import frozen_of
from fedcomp.model.precision import set_tf32
from fedcomp.network.traffic.recorder import TrafficRecorder
from fedcomp.provenance.check import RunInputs, run_inputs
from fedcomp.records.provenance import differences
from fedcomp.runtime.bfloat16 import check_bfloat16
from fedcomp.runtime.gpu import check_gpu, why_no_gpu
from fedcomp.runtime.process_settings import keep_freed_memory, pick_device, release_gpu_code, set_determinism
from fedcomp.simulation.autotune.conv_autotune import plan_convolutions
from fedcomp.simulation.autotune.plan import FILE as PLAN
from fedcomp.simulation.autotune.plan import Plan
from fedcomp.simulation.round_result import RoundRunner
from fedcomp.simulation.simulation import Simulation
from fedcomp.training.errors_of_gpu import in_one_line
from fedcomp.training.place import RunPlace
from fedcomp.training.session_forms import rehearse
from fedcomp.training.setup import FolderSetup, RunSetup
from fedcomp.training.writer import Writer


@dataclass(frozen=True)
class BuiltRun:
    """What `build` makes of a place, and `run` executes.

    Attributes:
        place: where the run's files lie. processes: of the run. setup: what this process writes around the session.
        simulation: of the run, or its first repetition. rounds: the simulation, or a study of its repetitions.
        plan: of convolutions; None: there is none. recorder: of the traffic; None: nobody asks for it. writer: of the
            session.
    """

    place: RunPlace
    processes: ProcessContext
    setup: RunSetup
    simulation: Simulation
    rounds: RoundRunner
    plan: Plan | None
    recorder: TrafficRecorder | None
    writer: Writer


def prepare(place: RunPlace, processes: ProcessContext) -> torch.device:
    """Sets torch up for the run. Returns this process's device. Raises ValueError: torch cannot use it."""
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
    configure_torch(device, config.precision.name, config.deterministic)
    return device


def build(place: RunPlace, processes: ProcessContext, device: torch.device) -> BuiltRun:
    """Build the run whose folder the main process holds. Errors as `train`."""
    config, plain, folder = place.config, place.plain, place.path
    setup = FolderSetup(place) if processes.is_main_process else RunSetup()
    with setup.building(), in_one_line():
        check_effects(config)
        bfloat16 = check_bfloat16() if device.type == "cpu" and config.precision.name == "bf16" else None
        with processes.main_process_first():
            simulation, parts = build_simulation(config, device)
        frozen = frozen_of(simulation.model).values()
        if bfloat16 is None and device.type == "cpu" and any(one.dtype is torch.bfloat16 for one in frozen):
            bfloat16 = check_bfloat16("frozen weights in bfloat16", "float32, by model.dtype=float32")
        inputs = run_inputs(plain, lambda: simulation.dataset, frozen_of(simulation.model))
        mine = "/".join(place.path.parts[-3:]), inputs
        _check_same_inputs(mine, processes.broadcast_object(mine))
        check_enough_work(len(simulation.shards.sizes), config.repeats, processes.size)
        simulation = processes.distribute(simulation, config.chunk_size, config.threads)
        writer = setup.writer(inputs, simulation, parts, bfloat16)
        simulation, plan = _planned(simulation, config, folder, processes)
        rehearse(simulation, processes)
        recorder = build_recorder(simulation, config)
        rounds = build_runner(simulation, config, spread=recorder is None)
    return BuiltRun(place, processes, setup, simulation, rounds, plan, recorder, writer)


def configure_torch(device: torch.device, precision: str, deterministic: bool) -> None:
    """Sets torch's process-wide options."""
    if device.type == "cpu":
        torch.set_num_threads(1)  # threads share chunks of clients instead: runtime/workers.py
        keep_freed_memory()
        release_gpu_code()
    else:
        torch.cuda.set_device(device.index or 0)  # where kernels and graphs are launched
    set_tf32(precision, device)
    set_determinism(deterministic, device)


def _planned(
    simulation: Simulation, config: DictConfig, folder: Path, processes: ProcessContext
) -> tuple[Simulation, Plan | None]:
    """The simulation with its plan, which the main process makes: all processes must compute alike."""
    plan: Plan | None = None
    if processes.is_main_process:
        fixed_chunk = config.chunk_size is not None
        plan = plan_convolutions(simulation, config.plan, config.client.batch_size, fixed_chunk, folder / PLAN)
    plan = processes.broadcast_object(plan)
    return (simulation if plan is None else plan.applied_to(simulation)), plan


def _check_same_inputs(mine: tuple[str, RunInputs], main: tuple[str, RunInputs]) -> None:
    """Raise ValueError unless this process makes the run of process 0, which may be on another machine, and reads what
    that reads. Each is the run's name with its hash and seed, and its inputs."""
    (run, own), (its_run, its) = mine, main
    if run != its_run:
        raise ValueError(
            f"options on {socket.gethostname()} are not those of process 0: they make the run {run} instead of "
            f"{its_run}; give all machines the same"
        )
    model = "the model's parts", own.model or {}, its.model or {}
    for what, here, there in (("data", own.data, its.data), ("code", own.code, its.code), model):
        for difference in differences(there, here):
            raise ValueError(
                f"{what} on {socket.gethostname()} are not those of process 0: {difference}; give all machines the same"
            )
