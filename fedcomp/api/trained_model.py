"""The networks that a run has trained, as modules of torch."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

from fedcomp.config.factory import build_simulation
from fedcomp.config.identity import config_hash
from fedcomp.config.schema import RunConfig, plain_config
from fedcomp.model.contract import TaskModel
from fedcomp.model.flat import Flat
from fedcomp.records.checkpoint import resume
from fedcomp.records.run_folder import CHECKPOINT


def trained_models(folder: Path, config: DictConfig, round: int | str = "last") -> list[nn.Module]:
    """The modules with the weights that `test` metrics are of, which are means over them.

    Args:
        folder: of the run. config: its config. round: "last", or the number of rounds of its checkpoint.
    Raises:
        ValueError: there is no checkpoint, or it is of another round, or the model is no network, or the run has
            repeats.
    """
    typed = OmegaConf.merge(OmegaConf.structured(RunConfig), config, {"device": "cpu"})  # with the types of its keys
    assert isinstance(typed, DictConfig)
    device = torch.device("cpu")
    simulation, _ = build_simulation(typed, device)
    if isinstance(simulation.model, TaskModel):
        raise ValueError(f"{folder}: model={config.model._target_.split('.')[-2]} is no network")
    if config.repeats > 1:
        raise ValueError(f"{folder} is a study of repeats={config.repeats}: it has a model for each repetition")
    hash_ = config_hash(plain_config(typed, device))
    notes: list[str] = []
    checkpoint = resume(folder / CHECKPOINT, simulation.init(), hash_, notes.append)
    if checkpoint is None:
        raise ValueError(f"{folder} has no checkpoint: it has not begun, or {CHECKPOINT} was deleted")
    if round not in ("last", checkpoint.round):
        raise ValueError(f"{folder} has no model of round {round}: a run keeps its last one, of {checkpoint.round}")
    key = simulation.key.fold_in("deployed", checkpoint.round)
    models = simulation.algorithm.evaluation_models(checkpoint.state, key)["test"]
    module, rows = simulation.model.module, range(len(models.theta))
    return [with_weights(module, models.theta[row : row + 1], models.stats[row : row + 1]) for row in rows]


def with_weights(module: nn.Module, theta: torch.Tensor, stats: torch.Tensor) -> nn.Module:
    """A copy of the module, in evaluation mode, with these parameters [1, D] and running statistics [1, C]."""
    filled = copy.deepcopy(module).eval()
    layout = Flat(filled)
    floating = [buffer for buffer in filled.buffers() if buffer.is_floating_point()]
    with torch.no_grad():
        for parameter, row in zip(filled.parameters(), layout.parameters(theta), strict=True):
            parameter.copy_(row[0])
        for buffer, row in zip(floating, layout.statistics(stats), strict=True):
            buffer.copy_(row[0])
    return filled
