"""Of batches of one sample a network with BatchNorm of features learns nothing, which a run says."""

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from fedcomp.model.build import build
from fedcomp.random.keys import Key
from fedcomp.simulation.lone_samples import lone_samples_note

GIVEN = Key(("lone samples",)), (1, 8, 8), 10, "classification"


def _zeros() -> nn.Module:
    last = nn.Linear(64, 10)
    nn.init.zeros_(last.weight)
    return nn.Sequential(nn.Flatten(), last)


def test_a_run_says_that_its_batches_teach_nothing() -> None:
    by_ten, _ = build_simulation(compose([]), torch.device("cpu"))
    solver = replace(by_ten.algorithm.solver, batch_size=1)
    by_one = replace(by_ten, algorithm=replace(by_ten.algorithm, client=solver))
    lone = replace(by_ten, shards=replace(by_ten.shards, sizes=np.ones_like(by_ten.shards.sizes)))
    normalised, by_sample = (
        build(lambda layer=layer: nn.Sequential(nn.Flatten(), layer, nn.Linear(64, 10)), *GIVEN)
        for layer in (nn.BatchNorm1d(64), nn.LayerNorm(64))
    )
    for simulation in (by_one, lone):
        said = lone_samples_note(replace(simulation, model=normalised))
        assert said is not None
        assert "every batch of this run has one sample" in said
        for model in (by_sample, build(_zeros, *GIVEN)):  # zeros give the same of any batch
            assert lone_samples_note(replace(simulation, model=model)) is None
    assert lone_samples_note(replace(by_ten, model=normalised)) is None
