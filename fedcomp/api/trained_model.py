"""The networks that a run has trained, as modules of torch."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torch import nn

from fedcomp.algorithm.contract import Models
from fedcomp.config import schema
from fedcomp.config.factory import build_simulation, repetitions_of
from fedcomp.config.trust import check_trusted
from fedcomp.core.choices import run_options
from fedcomp.core.first_line import first_line
from fedcomp.core.folders import part_name
from fedcomp.core.pytree import restore
from fedcomp.model.contract import Model, TaskModel
from fedcomp.model.flat import copy_sharing_frozen, statistics_of, trained_parameters
from fedcomp.model.lora.moved import moved_module
from fedcomp.provenance.check import changed_code, changed_data, check_model
from fedcomp.records.checkpoint import Checkpoint, read_last
from fedcomp.records.reader import RunFiles
from fedcomp.records.run_folder import CHECKPOINT, CONFIG, WITHOUT_EFFECT
from fedcomp.simulation.simulation import Simulation

log = logging.getLogger("fedcomp")

TRUST_CODE = "run the code that the run's config names, also if it is not fedcomp's"
"""The help of `--trust-code`."""


@dataclass(frozen=True)
class TrainedRun:
    """A run with its state.

    Attributes:
        repeats: repetitions of the run, of which this is one. simulation: its parts, on the CPU. network: its model.
        round: rounds completed.
        models: what its `test` metrics are of, means over the models.
    """

    repeats: int
    simulation: Simulation
    network: Model
    round: int
    models: Models


def trained_run(folder: Path, trust_code: bool, words: Sequence[str]) -> TrainedRun:
    """A run's parts and the models that it evaluates, from its config and its last checkpoint. Changes no file.

    Args:
        folder: of the run.
        trust_code: call what the config names, also if it is not fedcomp's.
        words: overrides that say where its data lie by now, see `places`.
    Raises:
        ValueError: the config names code that is not trusted, there is no config or checkpoint, the model is no
            network, the run has repeats, the checkpoint does not fit, or a word makes other data.
    """
    changes = places(folder, words, trust_code)
    if others := [word for word in words if word.partition("=")[0] not in changes]:
        raise ValueError(
            f"{others[0]} does not say where the run's data lie by now: give dataset.root, or dataset.path of a file "
            "that is not where it was"
        )
    first = next(trained_repetitions(folder, changes, trust_code))
    if first.repeats > 1:
        raise ValueError(
            f"{folder} is a study of repeats={first.repeats}, with a model for each repetition: without repeats "
            "the same run has that of repetition 0"
        )
    return first


def trained_repetitions(folder: Path, changes: Mapping[str, Any], trust_code: bool) -> Iterator[TrainedRun]:
    """The repetitions of a study, one after another; of a run without repeats itself. The rest as in `trained_run`.

    `changes`: {key with dots: value} to set in its config, such as where its data lie.
    """
    config = recorded_config(folder, trust_code)
    config.device = "cpu"
    for key, value in changes.items():
        OmegaConf.update(config, key, value, force_add=True)
    simulation, _ = build_simulation(config, torch.device("cpu"))
    network = simulation.model
    if isinstance(network, TaskModel):
        raise ValueError(f"{folder}: model={part_name(config.model._target_)} is no network")
    check_model(folder, config.model, network.frozen)
    plain: Any = OmegaConf.to_container(config)
    for changed in (changed_code(folder, plain), changed_data(folder, plain["dataset"], simulation.dataset)):
        if changed is not None:
            log.warning("warning: %s", changed)
    last = read_last(folder / CHECKPOINT)
    if last is None:
        raise ValueError(
            f"{folder} has no checkpoint: it was stopped before the first one, is a replay, or {CHECKPOINT} was deleted"
        )
    for number, repetition in enumerate(repetitions_of(simulation, config)):
        own = last
        if config.repeats > 1:  # the state of a study has repetitions as its first axis
            own = replace(last, state={name: tensor[number] for name, tensor in last.state.items()})
        yield TrainedRun(config.repeats, repetition, network, last.round, _models(repetition, own, folder))


def places(folder: Path, words: Iterable[str], trust_code: bool) -> dict[str, Any]:
    """{key: value} of the overrides that only say where a run's data lie by now.

    These are `dataset.root`, and `dataset.path` or `dataset.folder` where what the run's config names is not there.
    """
    data = recorded_config(folder, trust_code).dataset
    root = Path(str(data.get("root") or "")).expanduser()
    named = {key: data.get(key) for key in ("path", "folder")}
    lost = {f"dataset.{key}" for key, path in named.items() if path and not (root / Path(path).expanduser()).exists()}
    where = lost | {key for key in WITHOUT_EFFECT if key.startswith("dataset.")}
    return {key: value for key, value in map(parsed, words) if key in where}


def parsed(word: str) -> tuple[str, Any]:
    """Key and value of an override."""
    key, _, text = word.partition("=")
    return key, OmegaConf.select(OmegaConf.from_dotlist([f"value={text}"]), "value")


def unfinished(folder: Path, round: int) -> str | None:
    """One line on a run that has not reached its end, whose weights are those of a checkpoint; None: it has.

    Raises ValueError: its status cannot be read.
    """
    now = RunFiles(folder).status()
    if now is not None and now.state == "finished":
        return None
    rounds = RunFiles(folder).existing_config()["rounds"]
    state = "not finished" if now is None or now.state == "running" else now.state
    return f"{folder} is {state}: these are its weights after round {round} of {rounds}"


def recorded_config(folder: Path, trust_code: bool) -> DictConfig:
    """A run's config with the types of the schema, after a look at what building its parts would call.

    Raises ValueError: there is no config, it is none, or it names code that is not trusted.
    """
    plain = RunFiles(folder).written_config()
    try:
        config = OmegaConf.merge(OmegaConf.structured(schema.RunConfig), run_options(), plain)
        assert isinstance(config, DictConfig)
        schema.check(config)
    except OmegaConfBaseException as error:
        raise ValueError(f"{folder / CONFIG} is no config of a run: {first_line(error)}") from error
    if not trust_code:
        check_trusted(OmegaConf.to_container(config, resolve=True), folder / CONFIG)
    return config


def modules_of(run: TrainedRun) -> list[nn.Module]:
    """The modules with the weights that `test` metrics are of, which are means over them."""
    models = run.models
    module = moved_module(run.network.module, models.change)
    rows = range(len(models.theta))
    return [with_weights(module, models.theta[row : row + 1], models.stats[row : row + 1]) for row in rows]


def _models(simulation: Simulation, last: Checkpoint, folder: Path) -> Models:
    """The models to evaluate, from the checkpoint's state."""
    try:
        state = restore(simulation.init(), last.state)
    except ValueError as error:
        raise ValueError(f"checkpoint {folder / CHECKPOINT} does not fit: {error}") from error
    if simulation.algorithm.personalised:
        raise ValueError(f"{folder} has a model for each client, and none that all have: there is none to take from it")
    return simulation.algorithm.evaluation_models(state, simulation.key.fold_in("deployed", last.round))["test"]


def with_weights(module: nn.Module, theta: torch.Tensor, stats: torch.Tensor) -> nn.Module:
    """A copy of the module, in evaluation mode, with these parameters [1, D] and running statistics [1, C].

    Frozen tensors are those of the module itself.
    """
    filled = copy_sharing_frozen(module).eval()
    layout = Model(filled)
    with torch.no_grad():
        for parameter, row in zip(trained_parameters(filled), layout.parameters(theta), strict=True):
            parameter.copy_(row[0])
        for buffer, row in zip(statistics_of(filled).values(), layout.statistics(stats), strict=True):
            buffer.copy_(row[0])
    return filled
