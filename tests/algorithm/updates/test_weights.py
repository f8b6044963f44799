"""Clients count by their weights: one of weight 0 leaves no trace in the model, and the others their shares."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedcomp.algorithm.fedmrn import FedMRN
from fedcomp.algorithm.fedpm import FedPM
from fedcomp.algorithm.fedsparsify import FedSparsify
from fedcomp.algorithm.fetchsgd import FetchSGD
from fedcomp.algorithm.learnt_bits.fedbat import FedBAT
from fedcomp.algorithm.learnt_bits.fedbif import FedBiF
from fedcomp.algorithm.zeroth_order.decomfl import DeComFL
from fedcomp.algorithm.zeroth_order.fedkseed import FedKSeed
from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key
from tests.conformance import world
from tests.looped import looped
from tests.parts import Compressor, Dense, Full, ServerSgd, Sgd

SGD, STEP, DENSE = Sgd(lr=0.1, batch_size=4), ServerSgd(), Compressor(Dense())
METHODS = (
    FedBAT(SGD, STEP, DENSE),
    FedBAT(SGD, STEP, DENSE, biases="dense"),
    FedBiF(SGD),
    FedMRN(SGD, STEP, DENSE),
    FedPM(Sgd(lr=20.0, batch_size=4), weights="samples", clamp=0.1),
    FedSparsify(SGD, sparsity=0.5),
    FetchSGD(SGD, k=9, share=None, fraction=1.0),
    DeComFL(steps=2, perturbations=3, lr=0.01, batch_size=4, weights="samples"),
    FedKSeed(pool=20, steps=3, lr=0.01, batch_size=4),
    FedKSeed(pool=2, steps=9, lr=0.01, batch_size=4),  # which sends sums
)


@dataclass(frozen=True)
class These(Full):
    """The same clients and weights in every round."""

    clients: tuple[int, ...] = ()
    weight: tuple[float, ...] = ()

    def sample(self, key: Key, importance: Tensor, round_index: int = 0) -> Cohort:
        return Cohort.of(self.clients, torch.tensor(self.weight))


@looped("algorithm", METHODS)
def test_a_client_of_weight_0_leaves_no_trace(algorithm: Any) -> None:
    alone, beside, other = (
        world.run(world.in_float64(world.simulation(algorithm, participation=These(*chosen))), last=1).theta
        for chosen in (((1,), (1.0,)), ((1, 4), (1.0, 0.0)), ((1, 4), (0.75, 0.25)))
    )
    torch.testing.assert_close(beside, alone, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(other, alone, rtol=1e-3, atol=1e-4)
