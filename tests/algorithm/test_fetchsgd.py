"""FetchSGD: without collisions it is SGD with momentum, or Top-k with error feedback; bits; refusals."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context, Setup
from fedcomp.algorithm.fetchsgd import FetchSGD
from fedcomp.client.sgd import Sgd
from fedcomp.compressor.projections.count_sketch import CountSketch
from fedcomp.compressor.sparsifiers.topk import stable_topk
from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key
from fedcomp.wire import Ledger, Link, SharedKnowledge
from tests.algorithm import quadratic
from tests.refused import refused

SGD = Sgd(lr=0.05, batch_size=4)


def _identity(self: CountSketch, row: int, columns: int, common) -> tuple[Tensor, Tensor]:
    """A cell for each entry."""
    return torch.arange(common.dim), torch.ones(common.dim)


@pytest.fixture
def without_collisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CountSketch, "_hashes", _identity)


def _by_hand(clients: quadratic.Quadratics, k: int, rho: float, lr: float, num_rounds: int, mask: bool) -> Tensor:
    """[D] the model of Top-k with error feedback and momentum at the server."""
    theta, momentum, error = (torch.zeros(quadratic.D) for _ in range(3))
    for _ in range(num_rounds):
        momentum = rho * momentum + clients.change(theta).mean(0)
        error = error + lr * momentum
        places = stable_topk(error.abs()[None], k)[0]
        theta = theta.index_add(0, places, error[places])
        error = error.index_fill(0, places, 0.0)
        momentum = momentum.index_fill(0, places, 0.0) if mask else momentum
    return theta


@pytest.mark.usefixtures("without_collisions")
@pytest.mark.parametrize("clear", ["zero", "subtract"])
@pytest.mark.parametrize(("k", "mask"), [(quadratic.D, False), (7, False), (7, True)])
def test_without_collisions_it_is_topk_with_momentum(clear: str, k: int, mask: bool) -> None:
    clients = quadratic.Quadratics.of()
    algorithm = FetchSGD(quadratic.STEP, 3, quadratic.D, 1.0, k, None, 0.2, 0.9, clear, mask)
    state = quadratic.last(algorithm, clients, 40)
    torch.testing.assert_close(state.theta, _by_hand(clients, k, 0.9, 0.2, 40, mask), rtol=1e-4, atol=1e-5)


def test_sketches_of_all_rounds_are_those_of_vectors_and_add_up() -> None:
    """With collisions, and nothing masked: u and e are sketches, by the run's hashes, of what no server could keep."""
    clients, algorithm = quadratic.Quadratics.of(), FetchSGD(quadratic.STEP, 3, 20, 1.0, 7, None, 0.2, 0.9, "subtract")
    algorithm = replace(algorithm, mask_momentum=False)
    momentum, error = torch.zeros(quadratic.D), torch.zeros(quadratic.D)
    for before, after, _ in quadratic.rounds(algorithm, clients, 5):
        momentum = 0.9 * momentum + clients.change(before.theta).mean(0)
        error = error + 0.2 * momentum - (after.theta - before.theta)
        common = SharedKnowledge(Key(), torch.zeros(1, dtype=torch.int64), clients.layers, seed=after.seed)
        for cells, vector in ((after.momentum, momentum), (after.error, error)):
            torch.testing.assert_close(cells, algorithm.codec.sketch(vector[None], common)[0], rtol=1e-4, atol=1e-4)


def test_bits_and_hashes_of_the_run() -> None:
    clients, algorithm = quadratic.Quadratics.of(), FetchSGD(quadratic.STEP, 3, 10, 1.0, 4, None, positions="index")
    for before, after, bits in quadratic.rounds(algorithm, clients, 3):
        assert bits["uplink"] == 4 * 32 * 30
        assert bits["broadcast"] == 4 * (32 + 7)
        assert bits["downlink"] == 4 * bits["broadcast"]
        assert torch.equal(before.seed, after.seed)
    other = algorithm.init(torch.zeros(quadratic.D), torch.zeros(0), Setup(4, (), Key(("other",))))
    assert not torch.equal(other.seed, after.seed)


def test_a_cohort_sees_the_model_of_everybody() -> None:
    clients, algorithm = quadratic.Quadratics.of(), FetchSGD(quadratic.STEP, 3, 10)
    state, ledger = quadratic.init(algorithm, clients), Ledger()
    cohort = Cohort.of([1, 3], torch.full((2,), 0.5))
    algorithm.round(state, cohort, Context(0, 9, Key(("few",)), Link(ledger), clients))
    counters = ledger.counters()
    assert counters["downlink"] == 4 * counters["broadcast"]


test_wrong_options = refused(
    [
        ({"rows": 2}, "algorithm.rows=2 must be an odd number"),
        ({"share": 0.1, "k": 3}, "algorithm.share=0.1 and k=3 both set the number of entries"),
        ({"client": Sgd(lr=0.1, momentum=0.5)}, "client.momentum=0.5 and algorithm.rho=0.9 are two momenta"),
        ({"k": 102, "share": None}, "algorithm.k=102 is more than the D = 101"),
    ],
    lambda **options: quadratic.init(FetchSGD(**({"client": SGD} | options)), quadratic.Quadratics.of()),
)
