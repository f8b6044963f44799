"""Inside a round and an evaluation nothing goes from host to GPU, or back, by a copy that waits for the GPU."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from fedcomp.algorithm.bidirectional.cser import CSER
from fedcomp.algorithm.bidirectional.liec import LIEC
from fedcomp.algorithm.bidirectional.neolithic import Neolithic
from fedcomp.algorithm.fedscalar import FedScalar
from fedcomp.model.batched.functional import Functional
from fedcomp.server.adam import Adam
from fedcomp.simulation.cuda_graphs.graphed_loop import GraphedLoops
from fedcomp.wire import Ledger
from tests.compressor.test_conformance import CASES
from tests.conformance import world
from tests.parts import Compressor, Dense, ErrorFeedback, FedAvg, ServerSgd, Sgd, Sign, TopK
from tests.simulation.cuda_graphs.test_graphed_loop import PLAIN, RAGGED
from tests.simulation.pretended_device import DEVICE, Blocking, NoHost, moved
from tests.simulation.test_no_host_sync import MASKS, TASKS
from tests.simulation.user_module import Residual
from tests.thorough import thorough

BOTH_WAYS = (Sgd(lr=0.1), ServerSgd(), Compressor(Sign()), Compressor(Sign()))
METHODS = [
    *((algorithm, world.with_batch_norm) for algorithm in MASKS),
    *((make(Compressor(TopK(0.2, "index"), ErrorFeedback()), Compressor(Sign())), module) for make, module in TASKS),
    *((method(*BOTH_WAYS), world.mlp) for method in (Neolithic, partial(CSER, period=2), partial(LIEC, period=2))),
    *(
        (FedScalar(Sgd(lr=0.01), vector, "sphere", 2, sends=down), world.mlp)
        for vector in ("shared", "per_agent")
        for down in ("model", "scalar")
    ),
]


def _rounds(sim, num: int) -> list[str]:
    """What blocks in so many rounds and an evaluation."""
    sim = moved(sim)
    state = sim.init()
    with Blocking() as watch:
        for index in range(num):
            state, _ = sim.round(index, state, Ledger())
        sim.test_metrics(num, state)
    return watch.found


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "module"), METHODS, ids=lambda one: getattr(type(one), "__name__", None))
def test_no_method_blocks(algorithm, module) -> None:
    who = world.FULL if algorithm.full_participation else world.SOME
    assert _rounds(world.simulation(algorithm, module, who), 2) == []


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_codec_blocks(case) -> None:
    algorithm = FedAvg(Sgd(lr=0.1, steps=1), Adam(), Compressor(case.codec), Compressor(Dense()))
    assert _rounds(world.simulation(algorithm, world.with_batch_norm), 1) == []


def test_a_plain_round_blocks_nowhere() -> None:
    algorithm = FedAvg(Sgd(lr=0.1, momentum=0.9, clip_norm=1.0), Adam(), Compressor(Sign()), Compressor(Dense()))
    assert _rounds(world.simulation(algorithm, world.mlp, chunk_size=2), 2) == []


def test_copies_that_block_are_found() -> None:
    host = torch.ones(3)
    with Blocking() as watch:
        host.to(DEVICE, non_blocking=True)
        torch.empty(3, device=DEVICE).copy_(host, non_blocking=True)
        assert watch.found == []
        host.to(DEVICE)
        torch.empty(3, device=DEVICE).copy_(host)
        torch.tensor([1.0], device=DEVICE).new_tensor([1.0])
    found = ["aten::_to_copy", "aten::copy_", "torch.tensor", "torch.new_tensor"]
    assert [one.split(" ")[0] for one in watch.found] == found
    with pytest.raises(AssertionError):
        NoHost().capture(partial(host.add_, 1), [])


@pytest.mark.parametrize("module", [world.with_batch_norm, *thorough([world.mlp])])
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_recorded_piece_touches_the_device_alone(name, module) -> None:
    """As what a CUDA graph captures must: a copy from pageable memory ends the capture."""
    capture = NoHost()
    sim = world.simulation(PLAIN[name], module, sizes=RAGGED, participation=world.FULL, rounds=2)
    world.run(moved(sim, RAGGED, loop_runner=GraphedLoops(capture)))
    assert capture.recorded > 0


@pytest.mark.thorough
def test_a_recorded_module_of_a_user_touches_the_device_alone(trusting) -> None:
    """Here where clients are alike; `test_fake_gpu.py` has clients that are not."""
    capture, sizes = NoHost(), (9, 9, 9)
    sim = world.simulation(PLAIN["sgd"], Residual, sizes=sizes, participation=world.FULL, rounds=2)
    assert isinstance(sim.model, Functional)
    data = moved(sim, sizes)
    world.run(data)  # the first round copies the module's buffers
    world.run(replace(data, loop_runner=GraphedLoops(capture)))
    assert capture.recorded > 0
    assert not sim.model.vmap_refused
