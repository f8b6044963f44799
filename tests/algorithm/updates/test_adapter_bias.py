"""FedAvg's bias on adapters is the difference of products that it says."""

import pytest
import torch

from fedcomp.algorithm.updates.adapter_bias import adapter_bias
from fedcomp.core.cohort import Cohort
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.model.contract import Model
from fedcomp.wire import Ledger
from tests.conformance import world
from tests.lora_networks import lora_mlp, lora_mlp_b, lora_mlp_head
from tests.parts import Compressor, Dense, FedAvg, ServerSgd, Sgd

TENSORS = Model(lora_mlp_head()).tensors
LAYOUT = LoraLayout.of(TENSORS)


def test_it_is_the_direct_difference() -> None:
    generator = torch.Generator().manual_seed(0)
    start, change = torch.randn(43, generator=generator), 0.3 * torch.randn(3, 43, generator=generator)
    cohort = Cohort.of((0, 1, 2), torch.tensor([0.4, 1.0, 0.6]))
    p = (cohort.weight / 2).double()
    ((a, b),), ((a0, b0),) = LAYOUT.factors((start + change).double()), LAYOUT.factors(start[None].double())
    exact = sum(p[k] * b[k] @ a[k] for k in range(3))
    mean = sum(p[k] * b[k] for k in range(3)) @ sum(p[k] * a[k] for k in range(3))
    wanted = float((exact - mean).norm() / (exact - b0[0] @ a0[0]).norm())
    assert float(adapter_bias(start, change, cohort, TENSORS)["adapter/bias"]) == pytest.approx(wanted, rel=1e-6)
    assert wanted > 0.01
    alone = Cohort.of((1,), torch.ones(1))
    assert float(adapter_bias(start, change[:1], alone, TENSORS)["adapter/bias"]) == 0


def test_fedavg_says_it_where_both_factors_are_trained() -> None:
    fedavg = FedAvg(Sgd(lr=0.2, batch_size=4, epochs=3), ServerSgd(), Compressor(Dense()), Compressor(Dense()))
    for module, said in ((lora_mlp, True), (lora_mlp_b, False), (world.mlp, False)):
        sim = world.simulation(fedavg, module)
        _, result = sim.round(0, sim.init(), Ledger())
        assert ("adapter/bias" in result.metrics) is said
        if said:
            assert 0 < float(result.metrics["adapter/bias"]) < 1
