"""FLASC: what goes down, and what it is at density 1; AdamW at the server beside torch's."""

from dataclasses import replace

import pytest
import torch

from fedcomp.algorithm.lora.flasc import FLASC
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.server.adamw import AdamW
from fedcomp.wire import Ledger
from tests.conformance import world
from tests.lora_networks import lora_mlp
from tests.parts import Compressor, Dense, FedAvg, Sgd, TopK

SGD, DENSE = Sgd(lr=0.1, batch_size=4, momentum=0.9), Compressor(Dense())
FLASC_025 = FLASC(SGD, AdamW(), Compressor(TopK(0.25)))


@pytest.mark.parametrize("mask", ["model", "update"])
def test_with_densities_of_1_it_is_fedavg_bit_for_bit(mask: str) -> None:
    flasc = world.simulation(FLASC(SGD, AdamW(), DENSE, 1.0, mask), lora_mlp)
    fedavg = world.simulation(FedAvg(SGD, AdamW(), DENSE, DENSE, "uniform"), lora_mlp)
    ledgers = Ledger(), Ledger()
    states = [world.run(sim, ledger=ledger) for sim, ledger in zip((flasc, fedavg), ledgers)]
    assert torch.equal(states[0].theta, states[1].theta)
    assert ledgers[0].counters() == ledgers[1].counters()


def test_a_first_download_of_the_models_entries_has_no_b() -> None:
    """k_d = 10 of 40; what was learnt since the first model is 0 then, so that nobody misses anything by `update`."""
    sim = world.simulation(FLASC_025, lora_mlp)
    first, layout = sim.init().theta, LoraLayout.of(sim.model.tensors)
    masked = FLASC_025.down.masked(first, first)
    assert int(masked.count_nonzero()) == 10
    assert int(layout.b.take(masked).count_nonzero()) == 0
    assert masked.abs()[masked != 0].min() >= first[masked == 0].abs().max()
    assert torch.equal(replace(FLASC_025, mask="update").down.masked(first, first), first)


def test_a_first_download_of_what_was_learnt_costs_nothing() -> None:
    sim = world.simulation(replace(FLASC_025, mask="update"), lora_mlp)
    state, ledgers = sim.init(), [Ledger(), Ledger()]
    for index, ledger in enumerate(ledgers):
        state, _ = sim.round(index, state, ledger)
    first, second = (ledger.counters()["broadcast"] for ledger in ledgers)
    assert first == 0
    assert 10 * 32 < second < 10 * 32 + 40  # the gaps' Rice code beats a bitmap


@pytest.mark.parametrize("mask", ["model", "update"])
def test_what_is_tested_is_what_the_next_cohort_is_sent(mask: str, monkeypatch) -> None:
    sim = world.simulation(replace(FLASC_025, mask=mask), lora_mlp)
    state, got = world.run(sim), []
    tested = sim.algorithm.evaluation_models(state, sim.key)["test"].theta[0]
    real = FLASC_025.down.__class__.model
    monkeypatch.setattr(
        "fedcomp.algorithm.lora.flasc.MaskedModel.model", lambda *args: got.append(real(*args)) or got[-1]
    )
    sim.round(3, state, Ledger())
    assert torch.equal(got[0][0], tested)
    assert not torch.equal(tested, state.theta)


def test_the_servers_adamw_is_torchs() -> None:
    theta = torch.nn.Parameter(torch.randn(20, generator=torch.Generator().manual_seed(0)))
    own, server = theta.detach().clone(), AdamW(lr=0.1, weight_decay=0.3)
    optimizer, slots = torch.optim.AdamW([theta], lr=0.1, weight_decay=0.3), server.init(own)
    for seed in range(5):
        update = torch.randn(20, generator=torch.Generator().manual_seed(seed + 1))
        theta.grad = -update
        optimizer.step()
        step, slots = server.step(update, slots)
        own = own + step
    torch.testing.assert_close(own, theta.detach())
