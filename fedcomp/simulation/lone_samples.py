"""Runs whose batches have one sample, of which some networks learn nothing, such as those with BatchNorm of features.

Shape legend: A clients on trial, O outputs.
"""

import torch
from torch import Tensor

from fedcomp.model.contract import Batch, Model
from fedcomp.random.keys import Key
from fedcomp.simulation.chunks.client_data import ClientChunk
from fedcomp.simulation.simulation import Simulation

KEY = Key(("batches of one sample",))
ON_TRIAL = 8
"""Clients whose first samples are compared."""


def lone_samples_note(simulation: Simulation) -> str | None:
    """What is said where no step sees two samples, and outputs in training are the same for all; None: nothing."""
    model, solver, sizes = simulation.model, simulation.algorithm.solver, simulation.shards.sizes
    if not isinstance(model, Model) or solver is None or min(solver.batching.batch_size, int(sizes.max())) > 1:
        return None
    clients = (-sizes).argsort(kind="stable")[:ON_TRIAL]
    ids = torch.from_numpy(clients).to(simulation.device)
    data = ClientChunk(ids, sizes[clients], KEY, simulation.dataset, simulation.shards, model)
    theta, stats = (part.to(simulation.device).expand(len(ids), -1).contiguous() for part in model.init(KEY))
    x, y, weight = next(iter(data.samples(1)))
    batch = Batch(x, y, weight, stats)
    with torch.no_grad():
        tested, trained = (data.outputs(theta, batch, step)[0] for step in (None, 0))  # [A, 1, O, ...]
    if _all_alike(tested) or not _all_alike(trained):  # a last layer of zeros gives the same in any case
        return None
    return (
        "warning: every batch of this run has one sample, and the model's outputs in training are then the same for "
        "all, as by BatchNorm of features, which subtracts the batch's mean: next to nothing is learnt; take "
        "client.batch_size=2 or more, clients with more samples, or a model without it"
    )


def _all_alike(outputs: Tensor) -> bool:
    return torch.allclose(outputs, outputs[:1].expand_as(outputs))
