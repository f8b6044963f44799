"""On a GPU: replayed graphs leave the bits of the same loops run again and again."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedcomp.client.sgd import Sgd
from fedcomp.core.pytree import flatten
from fedcomp.simulation.chunks.client_data import ClientShards
from fedcomp.simulation.cuda_graphs.capture import Capture, CudaGraphs
from fedcomp.simulation.cuda_graphs.graphed_loop import MOST_LOOPS, GraphedLoops
from tests.conformance import world
from tests.looped import looped
from tests.simulation.cuda_graphs.test_graphed_loop import ALIKE, PLAIN, RAGGED

pytestmark = pytest.mark.gpu


def _simulation(name: str, module, sizes, recorder):
    cpu = world.simulation(PLAIN[name], module, sizes=sizes, rounds=3, participation=world.FULL)
    device = torch.device("cuda")
    parts = list(torch.arange(sum(sizes)).split(list(sizes)))
    moved = {"dataset": cpu.dataset.to(device), "shards": ClientShards.of(parts, device), "device": device}
    return replace(cpu, loop_runner=recorder, **moved)


@looped("sizes", [ALIKE, RAGGED])
@looped("module", [world.mlp, world.with_batch_norm])
@looped("name", PLAIN)
def test_graphs_do_what_their_work_does(name, module, sizes, caplog) -> None:
    both = (CudaGraphs(torch.device("cuda")), Capture())
    states = [flatten(world.run(_simulation(name, module, sizes, GraphedLoops(capture)))) for capture in both]
    assert not [record for record in caplog.records if "cannot be captured" in record.message]
    for part in states[0]:
        assert torch.equal(states[0][part], states[1][part]), part


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_recorded_rounds_are_near_those_step_by_step(name) -> None:
    both = (GraphedLoops(CudaGraphs(torch.device("cuda"))), None)
    graphs, plain = (flatten(world.run(_simulation(name, world.mlp, RAGGED, recorder))) for recorder in both)
    for part in (one for one in plain if plain[one].numel()):
        assert torch.allclose(graphs[part], plain[part], rtol=1e-4, atol=1e-5), part


def _wide():
    """Layers wide enough for matrix products that need a workspace."""
    layers = [nn.Linear(world.NUM_FEATURES, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 3)]
    return nn.Sequential(*layers)


def test_graphs_outlive_those_that_are_dropped() -> None:
    """More loops than are kept, in turn; what is dropped must not be what the others still use."""
    clients = [Sgd(lr=0.1, batch_size=8, momentum=0.05 * index) for index in range(MOST_LOOPS + 4)]
    algorithms = [replace(PLAIN["sgd"], client=client) for client in clients]
    states: list[list[dict[str, torch.Tensor]]] = []
    for capture in (CudaGraphs(torch.device("cuda")), Capture()):
        recorder = GraphedLoops(capture)
        simulations = [replace(_simulation("sgd", _wide, ALIKE, recorder), algorithm=one) for one in algorithms]
        shared = [replace(one, model=simulations[0].model, dataset=simulations[0].dataset) for one in simulations]
        states.append([flatten(world.run(one)) for turn in range(2) for one in (*shared, *shared[4:8])])
    for graphs, eager in zip(*states, strict=True):
        assert all(torch.equal(graphs[part], eager[part]) for part in graphs)
