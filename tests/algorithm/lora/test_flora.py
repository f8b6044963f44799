"""FLoRA: the base moves by the exact mean of the products, at counted bits."""

from functools import partial

import pytest
import torch

from fedcomp.algorithm.lora.flora import FLoRA
from fedcomp.client.sgd import Sgd
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.model.lora.moved import moved
from fedcomp.participation.uniform import Uniform
from fedcomp.wire import Ledger
from tests.algorithm.lora.planted import RANKS, factors_of, planted_run, weights_of
from tests.conformance import world
from tests.lora_networks import lora_mlp, lora_mlp_head

SGD = Sgd(lr=0.1, batch_size=4)
FOUR = (2, 1, 1, 2, 1, 1, 2)


@pytest.mark.parametrize("sends", ["stack", "weights", "shortest"])
def test_the_base_moves_by_the_exact_mean_of_products(sends: str) -> None:
    """Unequal weights and ranks, two rounds that end alike; weights on both factors would differ."""
    sim, state, _, _ = planted_run(FLoRA, 3, rounds=2, ranks=RANKS, sends=sends)
    matrices, scale = state.change.double().split([30, 18]), 4.0 / 3
    for got, each in zip(matrices, factors_of(sim), strict=True):
        wanted = 2 * scale * sum(p * b @ a for p, (a, b) in zip(weights_of(sim), each, strict=True))
        assert torch.allclose(got, wanted.flatten(), rtol=0, atol=1e-5)
    assert not LoraLayout.of(sim.model.tensors).b.take(state.theta).any()


def test_every_round_begins_with_new_adapters_of_the_clients_own() -> None:
    _, _, _, solver = planted_run(FLoRA, 3, rounds=2, ranks=RANKS)
    sim = world.simulation(FLoRA(SGD), partial(lora_mlp, rank=3))
    rounds = [LoraLayout.of(sim.model.tensors).factors(rows) for rows in solver.started]
    for matrix, inputs in enumerate((5, 6)):
        a = [factors[matrix][0] for factors in rounds]
        assert not any(factors[matrix][1].any() for factors in rounds)
        assert (a[0].abs() <= inputs**-0.5).all()
        assert (a[0][2] != a[0][5]).all()  # clients
        assert (a[0][2] != a[1][2]).all()  # rounds
        assert [int(one.any(1).sum()) for one in a[0]] == list(RANKS)
    assert not torch.equal(rounds[0][0][0][:, :, :3], rounds[0][1][0][:, :, :3])


def test_bits_up_are_the_own_components_and_down_goes_the_shorter_to_all() -> None:
    for sends in ("stack", "weights", "shortest"):
        sim = world.simulation(FLoRA(SGD, FOUR, sends=sends), lora_mlp_head, Uniform(num_participants=2), rounds=6)
        for index in range(6):
            ledger, ranks = Ledger(), [FOUR[client] for client in sim.cohort(index).clients]
            world.run(sim, first=index, last=index + 1, ledger=ledger)
            stack = sum(ranks) * 11
            entries = {"stack": stack, "weights": 30, "shortest": min(stack, 30)}[sends]
            wanted = (32 * (stack + 2 * 21), 7 * 32 * (entries + 21))
            assert (ledger.counters()["uplink"], ledger.counters()["downlink"]) == wanted


def test_it_trains_and_is_tested_over_the_moved_base() -> None:
    sim = world.simulation(FLoRA(SGD, sends="stack"), lora_mlp, world.FULL, rounds=2)
    first = world.run(sim, last=1)
    x = sim.dataset.test.x
    before = sim.model.outputs(first.theta, first.stats, x)
    after = moved(sim.model, first.change).outputs(first.theta, first.stats, x)
    assert torch.equal(before, sim.model.outputs(sim.init().theta, first.stats, x))  # B is 0
    loss = torch.nn.functional.cross_entropy(after, sim.dataset.test.y)
    assert float(sim.test_metrics(1, first)["test/loss"]) == pytest.approx(float(loss), rel=1e-5)
    _, result = sim.round(1, first, Ledger())
    _, unmoved = sim.round(1, sim.init(), Ledger())
    assert not torch.allclose(result.metrics["train/loss"], unmoved.metrics["train/loss"], rtol=1e-3)
