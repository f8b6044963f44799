"""FedSparsify: exact sparsity, its schedule; FetchSGD: without collisions and with, bits, refusals."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from fedcomp.algorithm.contract import Setup
from fedcomp.algorithm.fedsparsify import FedSparsify
from fedcomp.algorithm.fetchsgd import FetchSGD
from fedcomp.client import Batch
from fedcomp.compressor.projections.count_sketch import CountSketch
from fedcomp.compressor.sparsifiers.topk import stable_topk
from fedcomp.core.parameter_layout import WEIGHT, ParameterSubset, ParameterTensor
from fedcomp.model.build import build
from fedcomp.model.contract import Gradient
from fedcomp.model.networks.cnn import lenet5
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from tests.algorithm.heterogeneous import STEP, D, N, Run, problem
from tests.conformance import world
from tests.looped import looped
from tests.parts import Compressor, Dense, FedAvg, ServerSgd, Sgd
from tests.refused import refused
from tests.rounds import one_round, rounds

SGD = Sgd(lr=0.1, batch_size=4, epochs=3, momentum=0.5)
WEIGHTS = 5 * 4 + 4 * 3


def test_one_epoch_is_pruned_after_its_last_step() -> None:
    metrics = one_round(world.simulation(FedSparsify(Sgd(lr=0.1, batch_size=4), 0.9))).metrics
    assert metrics["model/sparsity"].tolist() == pytest.approx([1 - 4 / WEIGHTS] * 3)


@looped("sparsity", [0.5, 0.9, 0.97])
def test_clients_send_exactly_the_weights_that_are_left(sparsity: float) -> None:
    one, kept = one_round(world.simulation(FedSparsify(SGD, sparsity))), {0.5: 16, 0.9: 4, 0.97: 1}[sparsity]
    assert one.metrics["model/sparsity"].tolist() == pytest.approx([1 - kept / WEIGHTS] * 3)
    assert kept <= sum(_weights_of(one.after.theta)) <= kept * 3
    assert (one.after.theta[20:24] != 0).all()


@dataclass(frozen=True)
class Watched:
    """Clients whose gradients change nothing; notes how many weights each of them still has when they are asked."""

    num_samples: Tensor
    left: list[list[int]]

    def gradient(self, theta: Tensor, batch: Batch, step: int) -> Gradient:
        self.left.append((theta != 0).sum(1).tolist())
        return Gradient(torch.zeros_like(theta), torch.zeros(len(theta)), batch.stats)


def test_weights_are_pruned_at_the_end_of_each_clients_own_epochs() -> None:
    part = ParameterSubset.of((ParameterTensor(10, WEIGHT),), lambda tensor: True)
    data, theta = Watched(torch.tensor([12, 8]), []), torch.arange(1.0, 21).view(2, 10)
    mask = torch.ones(2, 10, dtype=torch.bool)
    hook = FedSparsify(Sgd(lr=0.1, batch_size=4))._hook(data, part, 3, mask)  # type: ignore[arg-type]
    for step in range(5):
        hook(theta, Batch(torch.zeros(2, 4), torch.zeros(2, 4), None, torch.zeros(2, 0)), step)
    assert data.left == [[10, 10], [10, 10], [10, 3], [3, 3], [3, 3]]
    assert mask.sum(1).tolist() == [3, 3]


def test_what_is_pruned_stays_so_until_the_rounds_end() -> None:
    """Momenta go on moving a pruned weight; it is not chosen again for what they made of it."""
    part = ParameterSubset.of((ParameterTensor(10, WEIGHT),), lambda tensor: True)
    data, theta, mask = Watched(torch.tensor([4]), []), torch.arange(1.0, 11)[None], torch.ones(1, 10, dtype=torch.bool)
    hook = FedSparsify(Sgd(lr=0.1, batch_size=4))._hook(data, part, 3, mask)  # type: ignore[arg-type]
    for step in range(3):
        hook(theta, Batch(torch.zeros(1, 4), torch.zeros(1, 4), None, torch.zeros(1, 0)), step)
        theta[0, 2] = 50.0 * step
    assert mask.nonzero()[:, 1].tolist() == [7, 8, 9]


def test_no_sparsity_is_fedavg() -> None:
    dense = Compressor(Dense())
    sparse = world.run(world.simulation(FedSparsify(SGD, 0.0)))
    plain = world.run(world.simulation(FedAvg(SGD, ServerSgd(), dense, dense)))
    assert torch.allclose(sparse.theta, plain.theta, atol=1e-6)


def test_the_progressive_schedule_is_the_test_scripts() -> None:
    algorithm = FedSparsify(SGD, 0.97, "progressive")
    shares = [algorithm.sparsity_at(t, 201) for t in (0, 1, 20, 50, 100, 200)]
    assert shares == pytest.approx([0, 0.0145, 0.2629, 0.5608, 0.8488, 0.97], abs=1e-4)
    steps = FedSparsify(SGD, 0.97, "progressive", every=10, start=20)
    assert steps.sparsity_at(5, 201) == steps.sparsity_at(20, 201) == 0
    assert steps.sparsity_at(37, 201) == steps.sparsity_at(30, 201) > 0


def test_a_majority_keeps_what_half_of_the_clients_kept() -> None:
    union = world.run(world.simulation(FedSparsify(SGD, 0.8), participation=world.FULL), last=1)
    agreed = world.run(world.simulation(FedSparsify(SGD, 0.8, merge="majority"), participation=world.FULL), last=1)
    kept = agreed.theta != 0
    assert torch.equal(agreed.theta[kept], union.theta[kept])
    assert int(kept.sum()) < int((union.theta != 0).sum())


def _weights_of(theta: Tensor) -> list[int]:
    """How many weights the two matrices have, 5 x 4 and 4 x 3."""
    return [int((theta[:20] != 0).sum()), int((theta[24:36] != 0).sum())]


def test_a_matrix_without_a_weight_left_is_said_in_the_round_that_empties_it(caplog: pytest.LogCaptureFixture) -> None:
    sim = world.simulation(FedSparsify(SGD, 0.97))
    left = [_weights_of(sim.init().theta), *(_weights_of(one.after.theta) for one in rounds(sim))]
    assert left[0] == [20, 12]
    expected = [
        f"round {index + 1}: pruning leaves no weight in 1 of 2 matrices (number {number + 1}, of {size} weights"
        for index in range(4)
        for number, size in enumerate((20, 12))
        if left[index][number] and not left[index + 1][number]
    ]
    assert expected
    assert [record.getMessage().partition(")")[0] for record in caplog.records] == expected
    caplog.clear()
    assert all(_weights_of(world.run(world.simulation(FedSparsify(SGD, 0.5))).theta))
    assert not caplog.records


def test_the_largest_first_weights_of_lenet5_are_none_of_its_widest_layers() -> None:
    """Why it does not train with the constant schedule at 97 %: 400 inputs let no weight begin above 0.05."""
    model = build(lenet5, Key(("model",)), (1, 28, 28), 10, "classification", [torch.rand(5, 1, 28, 28)])
    part = ParameterSubset.of(model.tensors, lambda tensor: tensor.kind == WEIGHT)
    weights = part.take(model.init(Key(("model",)))[0]).abs()
    kept = torch.zeros_like(weights).scatter_(0, stable_topk(weights[None], 1845)[0], 1.0)
    assert part.layers == (150, 2400, 48_000, 10_080, 840)
    assert [int(one.sum()) > 0 for one in kept.split(part.layers)] == [True, True, False, True, True]


SHORT = Sgd(lr=0.05, batch_size=4)


def _identity(self: CountSketch, row: int, columns: int, common) -> tuple[Tensor, Tensor]:
    """A cell for each entry."""
    return torch.arange(common.dim), torch.ones(common.dim)


@pytest.fixture
def without_collisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CountSketch, "_hashes", _identity)


def _by_hand(k: int, rho: float, lr: float, num_rounds: int, mask: bool) -> Tensor:
    """[D] the model of Top-k with error feedback and momentum at the server."""
    theta, momentum, error = torch.zeros(3, D)
    for _ in range(num_rounds):
        momentum = rho * momentum + problem().changes(theta).mean(0)
        error = error + lr * momentum
        places = stable_topk(error.abs()[None], k)[0]
        theta = theta.index_add(0, places, error[places])
        error = error.index_fill(0, places, 0.0)
        momentum = momentum.index_fill(0, places, 0.0) if mask else momentum
    return theta


@pytest.mark.usefixtures("without_collisions")
@looped("clear", ["zero", "subtract"])
@looped("k, mask", [(D, False), (7, False), (7, True)])
def test_without_collisions_it_is_topk_with_momentum(clear: str, k: int, mask: bool) -> None:
    state = Run(FetchSGD(STEP, 3, D, 1.0, k, None, 0.2, 0.9, clear, mask), problem()).last(40)
    torch.testing.assert_close(state.theta, _by_hand(k, 0.9, 0.2, 40, mask), rtol=1e-4, atol=1e-5)


def test_sketches_of_all_rounds_are_those_of_vectors_and_add_up() -> None:
    """With collisions, and nothing masked: u and e are sketches, by the run's hashes, of what no server could keep."""
    clients, algorithm = problem(), FetchSGD(STEP, 3, 10, 1.0, 7, None, 0.2, 0.9, "subtract", False)
    momentum, error = torch.zeros(2, D)
    for before, after, _ in Run(algorithm, clients).rounds(5):
        momentum = 0.9 * momentum + clients.changes(before.theta).mean(0)
        error = error + 0.2 * momentum - (after.theta - before.theta)
        common = SharedKnowledge(Key(), torch.zeros(1, dtype=torch.int64), clients.layers, seed=after.seed)
        for cells, vector in ((after.momentum, momentum), (after.error, error)):
            torch.testing.assert_close(cells, algorithm.codec.sketch(vector[None], common)[0], rtol=1e-4, atol=1e-4)
    other = algorithm.init(torch.zeros(D), torch.zeros(0), Setup(N, (), Key(("other",))))
    assert not torch.equal(other.seed, after.seed)


test_wrong_options = refused(
    [
        ({"rows": 2}, "algorithm.rows=2 must be an odd number"),
        ({"share": 0.1, "k": 3}, "algorithm.share=0.1 and k=3 both set the number of entries"),
        ({"client": Sgd(lr=0.1, momentum=0.5)}, "client.momentum=0.5 and algorithm.rho=0.9 are two momenta"),
        ({"k": 41, "share": None}, "algorithm.k=41 is more than the D = 40"),
    ],
    lambda **options: Run(FetchSGD(**({"client": SHORT} | options)), problem()).init(),
)
