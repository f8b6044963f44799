"""Builds what a composed config describes: the simulation, its repetitions, and the clocks of its network."""

import functools
import inspect
import logging
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import torch
from omegaconf import DictConfig

from fedcomp.algorithm import fit
from fedcomp.algorithm.contract import Algorithm, Weights
from fedcomp.client.contract import Batching
from fedcomp.client.solver import LocalSolver
from fedcomp.compressor import Compressor
from fedcomp.config import schema
from fedcomp.config.instantiate import (
    build,
    build_compressor,
    build_error,
    build_model_factory,
    build_part,
    check_keys,
    check_kind,
)
from fedcomp.config.loaded_data import load_dataset
from fedcomp.core.choices import changes, default_choice
from fedcomp.core.cohort import Cohort
from fedcomp.core.folders import name_of
from fedcomp.core.validate import check_choice
from fedcomp.dataset.contract import Dataset
from fedcomp.evaluation.per_client import PerClient
from fedcomp.memory.check import check_memory
from fedcomp.model.build import build as build_model
from fedcomp.model.chunking import chunk_size
from fedcomp.model.contract import AnyModel, tensors_of
from fedcomp.model.precision import check_dtype
from fedcomp.network.clock import Clock
from fedcomp.network.deadline import Deadline
from fedcomp.network.links.contract import Network
from fedcomp.network.traffic.recorder import RecordedRepetition, TrafficRecorder
from fedcomp.participation.bernoulli import Bernoulli
from fedcomp.participation.cohorts import check_draws
from fedcomp.participation.contract import Participation
from fedcomp.partition.contract import Partition, check_parts
from fedcomp.random.global_draws import KEYED, no_global_draws
from fedcomp.random.keys import Key
from fedcomp.runtime.cores import num_cores
from fedcomp.runtime.workers import Workers
from fedcomp.server import ServerOptimizer
from fedcomp.server.trial import tried
from fedcomp.simulation.chunks.client_data import ClientShards
from fedcomp.simulation.estimator_check import check_estimators
from fedcomp.simulation.fused_loop import loop_runner_on
from fedcomp.simulation.monte_carlo.study import MonteCarloStudy, repetition_key
from fedcomp.simulation.optimum import least_squares
from fedcomp.simulation.round_result import RoundRunner
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger, Link, WireLink
from fedcomp.wire.legs import Legs, RoundLog

log = logging.getLogger("fedcomp")


def build_simulation(config: DictConfig, device: torch.device) -> tuple[Simulation, list[torch.Tensor]]:
    """Build every part of the run, and check that they fit together.

    Returns:
        The simulation, with everything on `device`, and the indices of each client's samples.
    """
    check_keys(config)
    key = Key(("run", config.seed))
    dataset = load_dataset(config.dataset)
    model = _build_model(config, dataset, key.fold_in("model"))
    participation = build_part(config.participation, Participation)
    if config.num_clients is not None:
        participation.check(config.num_clients)
    parts = _split(config, dataset)
    participation.check(len(parts))
    check_draws(participation, len(parts), config.rounds)

    algorithm = build_algorithm(config, model)
    fit.check_model(algorithm, model, config.precision.name)
    fit.check_parts(algorithm)
    fit.check_participation(algorithm, participation, len(parts), config.rounds)
    if algorithm.solver is not None:
        algorithm.solver.check_dataset(dataset)
        algorithm.solver.check_tensors(tensors_of(model))
    check_dtype(config.dtype.name, config.precision.name, model)
    batch_size = algorithm.batch_size or config.client.batch_size
    evaluation = build(config.evaluation)
    if evaluation is not None:
        check_kind(config.evaluation, evaluation, PerClient)
    num_in_chunk = config.chunk_size or chunk_size(model, device, dataset.input_shape, batch_size, dataset.input_dtype)
    simulation = Simulation(
        algorithm=algorithm,
        dataset=dataset,
        shards=ClientShards.of(parts, torch.device("cpu")),
        model=model,
        participation=participation,
        key=key,
        rounds=config.rounds,
        chunk_size=num_in_chunk,
        link=Link if config.wire is schema.Wire.counted else WireLink,
        workers=Workers(1 if device.type == "cuda" else config.threads or num_cores()),
        dtype=getattr(torch, config.dtype.name),
        per_client=evaluation,
    )
    if simulation.client_samples is not None:  # what cannot be judged is refused now, and not at the first evaluation
        evaluation.note_left_out(simulation.client_samples, len(parts))
    check_memory(simulation, math.ceil(simulation.expected_cohort), batch_size, device, config.repeats)
    simulation = replace(
        simulation,
        dataset=dataset.to(device),
        shards=ClientShards.of(parts, device),
        device=device,
        loop_runner=loop_runner_on(device, config.cuda_graphs),
    )
    check_estimators(simulation)
    return _with_optimum(simulation), parts


def build_runner(simulation: Simulation, config: DictConfig, spread: bool = True) -> RoundRunner:
    """The session's round runner: the simulation itself, or `config.repeats` independent repetitions of it.

    Args:
        spread: whether several processes may share the repetitions, instead of the clients of each; not where somebody
            records what all of them send.
    """
    repetitions = tuple(repetitions_of(simulation, config))
    return MonteCarloStudy.of(repetitions, spread) if config.repeats > 1 else simulation


def repetitions_of(simulation: Simulation, config: DictConfig) -> Iterator[Simulation]:
    """The `config.repeats` repetitions, of which `simulation` is the first."""
    yield simulation
    for number in range(1, config.repeats):
        repetition = replace(simulation, key=repetition_key(simulation.key, number))
        if config.partition.get("seed") is None:
            shards = ClientShards.of(_split(config, simulation.dataset, number), repetition.device)
            repetition = _with_optimum(replace(repetition, shards=shards))
            check_estimators(repetition)
        yield repetition


def build_recorder(simulation: Simulation, config: DictConfig) -> TrafficRecorder | None:
    """The recorder of what the run sends, with the clocks of its network; None: it has none and records nothing.

    Raises ValueError: the network has no links for so many clients.
    """
    network = build(config.network)
    if network is None and not config.record_traffic:
        return None
    num_clients, repeated = len(simulation.shards.sizes), config.repeats > 1
    if network is None:
        return TrafficRecorder(num_clients, [RecordedRepetition() for _ in range(config.repeats)], repeated)
    check_kind(config.network, network, Network)
    links, repetitions = network.checked_links(num_clients), []
    fit.check_deadline(simulation.algorithm, network, simulation.model)
    participation = simulation.participation
    drawn = isinstance(participation, Bernoulli)
    inclusion = participation.inclusion(num_clients).numpy() if drawn else np.ones(num_clients)
    for number in range(config.repeats):
        clock = Clock(network, links, repetition_key(simulation.key, number))
        where = f"repetition {number}: " if repeated else ""
        deadline = Deadline(clock, inclusion, where) if network.deadline is not None else None
        repetitions.append(RecordedRepetition(clock, deadline))
    if (first := repetitions[0].deadline) is not None and network.deadline_weights == "inverse":
        first.check(_trial_legs(simulation))
    return TrafficRecorder(num_clients, repetitions, repeated)


def _trial_legs(simulation: Simulation) -> Legs:
    """The legs of a trial round of one client, the one with the fewest samples; the round's result is dropped."""
    sizes = simulation.shards.sizes
    client = int(np.where(sizes > 0, sizes, sizes.max()).argmin())
    cohort, ledger = Cohort.of((client,), torch.ones(1)).to(simulation.device), Ledger()
    ledger.log = RoundLog()
    ledger.begin_round(cohort)
    assert ledger.legs is not None
    simulation.attempt(0, simulation.init(), cohort, ledger)
    return ledger.legs


def _build_model(config: DictConfig, dataset: Dataset, key: Key) -> AnyModel:
    factory = build_model_factory(config.model)
    try:
        return build_model(
            factory,
            key,
            dataset.input_shape,
            dataset.num_outputs,
            dataset.task,
            train=dataset.inputs(dataset.train),
            precision=config.precision.name,
            target_shape=dataset.target_shape,
            vocab_size=dataset.vocab_size,
            unlabelled=dataset.unlabelled,
            some_tokens=dataset.some_tokens,
            padding_token=dataset.padding_token,
        )
    except (TypeError, SystemExit) as error:  # the factory does not take the options in its config
        raise build_error(error, config.model) from error


def build_algorithm(config: DictConfig, model: AnyModel) -> Algorithm:
    """The algorithm with those of the client, the server and the compressors that its constructor takes."""

    def for_model(compressor: Compressor) -> Compressor:
        if config.batchnorm_messages is schema.BatchNormMessages.dense:
            compressor = compressor.for_tensors(tensors_of(model))
        return replace(compressor, measures_error=config.codec_error and not compressor.codec.near_lossless)

    constructors = {
        "client": lambda: build(config.client),
        "server": lambda: tried(build_part(config.server, ServerOptimizer)),
        "uplink": lambda: for_model(build_compressor(config.compressor)),
        "downlink": lambda: for_model(build_compressor(config.downlink, "downlink")),
    }
    algorithm = build(config.algorithm)
    wanted = _open_parameters(algorithm)
    if isinstance(algorithm, functools.partial):
        try:
            algorithm = algorithm(**{name: make() for name, make in constructors.items() if name in wanted})
        except TypeError as error:  # the algorithm does not have this option
            raise build_error(error, config.algorithm) from error
    check_kind(config.algorithm, algorithm, Algorithm)
    _refuse_unused(config, algorithm.config_name, set(constructors) - wanted)
    if algorithm.solver is not None:  # of the group, or of the algorithm's own YAML
        check_kind(config.client, algorithm.solver, LocalSolver)
        _check_solver(algorithm.solver)
    if "batch_size" not in config.client:
        raise ValueError("client.batch_size is missing: its YAML needs `batch_size: ...`, the samples of a local step")
    check_choice("algorithm.weights", algorithm.weights, get_args(Weights))
    return algorithm


def _check_solver(solver: LocalSolver) -> None:
    """Raise ValueError for one of the user's own without a `Batching`, or with a `run` that would leave hooks out."""
    where = f"client={name_of(solver)}"
    if not isinstance(solver.batching, Batching):
        raise ValueError(
            f"{where}: batching is a {type(solver.batching).__name__}, but must be a property that returns a Batching "
            "(from fedcomp.client import Batching)"
        )
    if type(solver).run is not LocalSolver.run:
        raise ValueError(
            f"{where}: run is the same for all solvers, as it has the algorithm's correction of the gradients, "
            "client.schedule, client.clip_norm and client.proximal: override `gradients`, which gives each step's "
            "direction, or `update`, which makes the step"
        )


def _with_optimum(simulation: Simulation) -> Simulation:
    """The simulation with the optimum of the clients' objective, if the model is a linear regression."""
    parts = simulation.model, simulation.dataset, simulation.shards, simulation.importance
    return replace(simulation, optimum=least_squares(*parts))


def _open_parameters(algorithm: Any) -> set[str]:
    """The constructor's parameters that the algorithm's config does not set: the parts that it uses."""
    if not isinstance(algorithm, functools.partial):
        return set()
    return set(inspect.signature(algorithm.func).parameters) - set(algorithm.keywords)


def _refuse_unused(config: DictConfig, algorithm: str, unused: set[str]) -> None:
    """Raise ValueError for a part that was chosen although the algorithm does not use it."""
    for name in sorted(unused):
        group = "compressor" if name == "uplink" else name
        given = changes(group, config[group])
        if given:
            raise ValueError(
                f"algorithm={algorithm} has no use for {', '.join(given)}: leave {group} at its default, "
                f"{default_choice(group)}"
            )


def _split(config: DictConfig, dataset: Dataset, repetition: int = 0) -> list[torch.Tensor]:
    partition = build_part(config.partition, Partition)
    seed = config.seed if partition.seed is None else partition.seed
    key = repetition_key(Key(("partition", seed)), repetition)
    name, num_samples = f"partition={name_of(partition)}", len(dataset.train)

    def dealt() -> list[torch.Tensor]:  # of copies: a rule of the user's own may mark in them whom it has dealt
        labels, owners = (one if one is None else one.clone() for one in (dataset.labels, dataset.train.owner))
        return partition.split(labels, num_samples, config.num_clients, key, owners)

    with no_global_draws(name):
        parts = dealt()
    check_parts(parts, num_samples, config.num_clients)
    if not type(partition).__module__.startswith("fedcomp."):
        again = dealt()
        if len(again) != len(parts) or not all(map(torch.equal, parts, again)):
            raise ValueError(f"{name} deals other samples by the same key, also to a resumed run: {KEYED}")
    left = num_samples - sum(map(len, parts))
    if left and not repetition:
        log.warning(
            f"{name} leaves {left:,} of {num_samples:,} training samples to no client: nobody trains on them",
            extra={"note": True},
        )
    return parts
