"""Every method's rounds on a GPU, as far as they can be run without one: one device, nothing read back."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from fedcomp.algorithm.contract import Models
from fedcomp.algorithm.updates import begun
from fedcomp.compressor.estimators.estimator import ESTIMATORS
from fedcomp.compressor.feedback import FEEDBACKS, Feedback
from fedcomp.compressor.mrc.fixed_point import gumbel_table
from fedcomp.config.factory import build_simulation
from fedcomp.core.rows import scatter_distinct_
from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.model.batched.functional import Functional
from fedcomp.model.batched.stacked import Stacked
from fedcomp.model.build import build
from fedcomp.model.networks.cnn_bn import cnn4_bn
from fedcomp.model.networks.linear import linear
from fedcomp.model.tunable import FORMS
from fedcomp.random.keys import Key
from fedcomp.simulation.chunks.client_data import ClientShards
from fedcomp.simulation.evaluation import metrics_of
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger
from fedcomp.wire.coding import arithmetic, packed_bytes
from fedcomp.wire.legs import RoundLog
from tests.algorithm.conformance_cases import CASES as ALGORITHMS
from tests.compressor.test_conformance import CASES as CODECS
from tests.config.test_configs import CHOICES, CPU, _compose, needed
from tests.conformance import world
from tests.looped import looped
from tests.operations import Operations
from tests.parts import DENSE, Compressor, FedAvg, Full, ServerSgd, Sgd, fedavg
from tests.simulation.blocking import Blocking, NoHost
from tests.simulation.fake_gpu import GPU, READ, drawn, fake_gpu, moved, sorts
from tests.simulation.user_module import Attending, Centred, Dropping, Residual, dropping_chain
from tests.thorough import thorough_rows

GROUPS = ("algorithm", "client", "compressor", "participation", "server")
HOST = ("m3", "decomfl", "rolora", "locodl", "tamuna", "marina", "marina_p")
"""Methods whose host draws a coin or a number of steps within the round, or looks up who missed what: there the host's
numbers are fake too."""
CASES = [f"{group}={choice}" for group, choice in CHOICES if group in GROUPS and choice not in HOST]
PLAIN = ("algorithm=fedavg", "algorithm=fedpm", "algorithm=bicompfl_cfl", "client=adam", "client=svrg")
"""Also with local loops that run step by step instead of being recorded: no method knows which it is. Of these
the fast tests run one step by step, and recorded those that are not among `FAST`."""
OPTIONS = [case for case in ALGORITHMS if not case.name.startswith((*HOST, "fedscalar-replay", "fedkseed-delta"))]
"""Methods with their options; but those whose host draws a coin, or looks up who holds what."""
FAST = """
fedavg-sign_both fedmrn-all fedpm-trained bicompfl_gr bicompfl_pr fedscalar-shared cser power-lossy kmeans-lossy
"""
"""Of the methods with their options, those that the fast tests run."""
READERS = """
fedsparsify fedsparsify-progressive fedpm-counts bicompfl_gr-adaptive bicompfl_gr-average deltamask deltamask-places
flora flora-weights flora-ranks flora-topk flexlora flexlora-ranks flexlora-topk hetlora hetlora-ranks hetlora-topk
hetlora-pruned
"""
"""Those whose rounds read back, as docs/performance.md says."""
ROUNDS, FEDAVG = 2, fedavg(Sgd(lr=0.1, batch_size=4))
SMALL = ["num_clients=60", "chunk_size=40"]
FEW: dict[str, Any] = {"sizes": (5, 2, 1, 3), "chunk_size": 3}
"""Clients of options and codecs: one has a step more than the others, and where all four take part one is a chunk."""


@pytest.fixture(autouse=True)
def a_later_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flag by which methods know their first round lies on the host, whose numbers are fake too."""
    monkeypatch.setattr(begun, "yes", lambda started: True)


QUICK = [("algorithm=fedavg", False), *((choice, True) for choice in PLAIN[2:-1])]
BOTH = [(choice, True) for choice in CASES] + [(choice, False) for choice in PLAIN]


@pytest.mark.parametrize(("choice", "recorded"), [*QUICK, *thorough_rows(each for each in BOTH if each not in QUICK)])
def test_rounds(choice: str, recorded: bool) -> None:
    assembled, _ = build_simulation(_compose(choice, *needed(choice), *SMALL), CPU)
    simulation = drawn(assembled, ROUNDS)
    pieces = _run(simulation, recorded, reads=choice.split("=")[1] in READERS.split())
    assert choice not in PLAIN or bool(pieces) is (recorded and choice != "client=svrg")


@pytest.mark.parametrize(
    "case",
    [pytest.param(one, id=one.name, marks=[pytest.mark.thorough] * (one.name not in FAST.split())) for one in OPTIONS],
)
def test_rounds_with_options(case) -> None:
    simulation = drawn(case.simulation(**FEW), ROUNDS)
    _run(simulation, recorded=True, reads=case.name in READERS.split())


def _with_codec(case, feedbacks: Iterable[Feedback], ways: Iterable[bool]) -> Iterator[Simulation]:
    """FedAvg with the codec up (False) or down (True) and every estimator, as far as these go together."""
    for feedback, (name, estimator), down in product(feedbacks, ESTIMATORS.items(), ways):
        if (case.name, name) == NEAR_SQUARE:
            continue
        with suppress(ValueError):  # parts that do not go together
            coded = Compressor(case.codec, feedback, estimator)
            algorithm = FedAvg(Sgd(lr=0.1, steps=1), ServerSgd(), *((DENSE, coded) if down else (coded, DENSE)))
            simulation = drawn(world.simulation(algorithm, **FEW), ROUNDS)
            simulation.init()
            yield simulation


NEAR_SQUARE = ("rand_proj-blocks", "proj_max")
"""Refused in its first round: n k is near d."""


@pytest.mark.slow
@pytest.mark.parametrize("case", CODECS, ids=lambda case: case.name)
def test_compressors_with_every_feedback_and_estimator_both_ways(case) -> None:
    found = [*_with_codec(case, FEEDBACKS.values(), (False, True))]
    assert found
    for simulation in found:
        _run(simulation, recorded=False)


@pytest.mark.thorough
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("form", FORMS)
def test_convolutions(form: str, precision: str) -> None:
    numbers = torch.arange(60)
    images = torch.randint(0, 256, (60, 16, 16, 3), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    data = Dataset("images", Samples(images, numbers % 10), Samples(images, numbers % 10), "classification", 10)
    model = build(cnn4_bn, Key(("conv",)), (3, 16, 16), 10, data.task, precision=precision)
    assert isinstance(model, Stacked)
    model.set_conv_algorithms([form] * len(model.convolutions))
    shards = ClientShards.of(list(numbers.split([20, 13, 27])), CPU)
    simulation = Simulation(FEDAVG, data, shards, model, Full(), Key(("run",)), ROUNDS, chunk_size=2)
    _run(drawn(simulation, ROUNDS), recorded=True)


@looped("recorded", [False, True])
@looped("module", [Residual, Centred])
def test_a_module_of_a_user(module: type[nn.Module], recorded: bool) -> None:
    """Run by `torch.func`, on clients of unequal sizes: all at once, or read where it looks at empty places."""
    simulation = drawn(world.simulation(FEDAVG, module, participation=world.FULL), ROUNDS)
    assert isinstance(simulation.model, Functional)
    _run(simulation, recorded, reads=module is Centred)
    assert module is Centred or not simulation.model.vmap_refused


@looped("module", [dropping_chain, Dropping, Attending])
def test_dropout(module: Callable[[], nn.Module]) -> None:
    """Drawn on the device, from keys on the host: step by step, also where loops could be recorded."""
    simulation = drawn(world.simulation(FEDAVG, module, participation=world.FULL), ROUNDS)
    _run(simulation, recorded=module is Dropping)
    assert not getattr(simulation.model, "vmap_refused", False)


DISTINCT = [case for case in CODECS if not case.name.startswith("count_sketch")]


@pytest.mark.thorough
@pytest.mark.parametrize("case", DISTINCT, ids=lambda case: case.name)
def test_no_codec_sorts_where_indices_are_distinct(case) -> None:
    """As a deterministic GPU does for a scatter: 20 million keys for ten clients of two million entries.

    Entries that share a cell of a sketch are summed in a fixed order, which needs the sort.
    """
    for simulation in _with_codec(case, [FEEDBACKS["none"]], [False]):
        with fake_gpu(), deterministic():
            _rounds(moved(simulation), watch := Operations(sorts))
        assert watch.names == []


def test_a_gpu_is_tested_on_larger_batches() -> None:
    """An evaluation of 10,000 samples is three launches of the network, and ten on a CPU."""
    x = torch.zeros(10_000, 4)
    data = Dataset("zeros", Samples(x, x[:, 0].long()), Samples(x, x[:, 0].long()), "classification", 2)
    model = build(linear, Key(), (4,), 2, data.task)
    seen, outputs = [], model.outputs
    with pytest.MonkeyPatch.context() as patch, fake_gpu():
        patch.setattr(model, "outputs", lambda theta, stats, x: seen.append(len(x)) or outputs(theta, stats, x))
        for device in (GPU, CPU):
            tested = Models(torch.zeros(1, model.dim, device=device), torch.zeros(1, 0, device=device))
            metrics_of({"test": tested}, model, data.to(device))
    assert seen == [4096, 4096, 1808, *[1024] * 9, 784]


def test_normalisation_is_two_launches() -> None:
    """Its constants are there before the first step."""
    x = torch.arange(6, dtype=torch.uint8).view(2, 3)
    mean, std = torch.tensor([1.0, 2.0, 0.5]), torch.tensor([2.0, 3.0, 0.7])
    data = Dataset("few", Samples(x, x), Samples(x, x), "regression", 3, mean, std).to(CPU)
    with Operations() as watch:
        found = data.normalise(x)
    assert torch.equal(found, torch.addcmul(-mean / std, x.float(), 1.0 / std))
    assert watch.names == ["aten::_to_copy", "aten::addcmul"]


def test_scatters_that_sort_are_noticed() -> None:
    with fake_gpu(), Operations(sorts) as watch:
        out, indices = torch.zeros(2, 3, device=GPU), torch.zeros(2, 3, dtype=torch.int64, device=GPU)
        out.scatter_(1, indices, out)
        with deterministic():
            out.scatter_(1, indices, 1.0)
            scatter_distinct_(out, indices, out)
            assert watch.names == []
            out.scatter_(1, indices, out).scatter_add_(1, indices, out)
    assert watch.names == ["aten::scatter_", "aten::scatter_add_"]


@contextmanager
def deterministic() -> Iterator[None]:
    """As a run on a GPU is by default."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def test_mixed_devices_and_reads_are_noticed() -> None:
    with fake_gpu():
        there = torch.ones(3, device=GPU)
        with pytest.raises(RuntimeError, match="same device|two different devices"):
            there + torch.ones(3)
        for read in (float, torch.nonzero):
            with pytest.raises(READ):
                read(there.sum())


def test_copies_that_block_are_noticed() -> None:
    with fake_gpu():
        host = torch.ones(3)
        with Blocking() as watch:
            host.to(GPU, non_blocking=True)
            torch.empty(3, device=GPU).copy_(host, non_blocking=True)
            assert watch.found == []
            host.to(GPU)
            torch.empty(3, device=GPU).copy_(host)
            torch.tensor([1.0], device=GPU).new_tensor([1.0])
        assert watch.found == ["aten::_to_copy", "aten::copy_", "aten::_to_copy", "aten::_to_copy"]
        with pytest.raises(AssertionError):
            NoHost().capture(partial(host.add_, 1), [])


def test_tables_made_inside_do_not_outlive_it() -> None:
    tables = (gumbel_table, arithmetic._table, packed_bytes._table)
    with fake_gpu():
        for table in tables:
            assert isinstance(table(GPU), FakeTensor)
            assert isinstance(table(CPU), FakeTensor)
    for table in tables:
        assert not table.cache_info().currsize
        assert not isinstance(table(CPU), FakeTensor)


def _run(simulation: Simulation, recorded: bool, reads: bool = False) -> int:
    """Rounds on the GPU, in which nothing waits for it, but what `reads`. Returns how many pieces were recorded."""
    capture = NoHost() if recorded else None
    with fake_gpu(), pytest.raises(READ) if reads else nullcontext():
        _rounds(moved(simulation, capture), watch := Blocking())
        assert watch.found == []
    return 0 if capture is None else capture.recorded


def _rounds(simulation: Simulation, watch: AbstractContextManager[object]) -> None:
    """Rounds and evaluations, watched from the second on: the first ones copy what stays on the device."""
    state, ledger = simulation.init(), Ledger()
    ledger.log = RoundLog()  # the legs of a round are kept on their device too
    for index in range(ROUNDS):
        with watch if index else nullcontext():
            state, result = simulation.round(index, state, ledger)
            assert all(value.is_cuda for value in result.metrics.values())
            if not simulation.algorithm.personalised:  # whose first evaluation looks up whom the samples judge
                simulation.test_metrics(index + 1, state)
