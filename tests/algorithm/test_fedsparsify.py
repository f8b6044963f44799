"""FedSparsify: exact sparsity, its schedule, and FedAvg at none."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from fedcomp.algorithm.fedsparsify import FedSparsify
from fedcomp.client import Batch, Gradient
from fedcomp.core.parameter_layout import WEIGHT, ParameterSubset, ParameterTensor
from fedcomp.wire import Ledger
from tests.conformance import world
from tests.looped import looped
from tests.parts import Compressor, Dense, FedAvg, ServerSgd, Sgd

SGD = Sgd(lr=0.1, batch_size=4, epochs=3, momentum=0.5)
WEIGHTS = 5 * 4 + 4 * 3


def test_one_epoch_is_pruned_after_its_last_step() -> None:
    sim = world.simulation(FedSparsify(Sgd(lr=0.1, batch_size=4), 0.9))
    _, result = sim.round(0, sim.init(), Ledger())
    assert result.metrics["model/sparsity"].tolist() == pytest.approx([1 - 4 / WEIGHTS] * result.cohort.size)


@looped("sparsity", [0.5, 0.9, 0.97])
def test_clients_send_exactly_the_weights_that_are_left(sparsity: float) -> None:
    sim = world.simulation(FedSparsify(SGD, sparsity))
    state, result = sim.round(0, sim.init(), Ledger())
    kept = sim.algorithm.num_kept(WEIGHTS, 0, 4)
    assert kept == {0.5: 16, 0.9: 4, 0.97: 1}[sparsity]
    assert result.metrics["model/sparsity"].tolist() == pytest.approx([1 - kept / WEIGHTS] * result.cohort.size)
    weights = torch.cat((state.theta[:20], state.theta[24:36]))
    assert kept <= int((weights != 0).sum()) <= kept * result.cohort.size
    assert (state.theta[20:24] != 0).all()


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
