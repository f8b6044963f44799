"""FedMRN: its training, its steps and its bits."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedcomp.algorithm.contract import Context
from fedcomp.algorithm.fedmrn import FedMRN
from fedcomp.algorithm.masks.training import bernoulli
from fedcomp.algorithm.updates.local_training import train_locally
from fedcomp.core.cohort import Cohort
from fedcomp.model.build import build
from fedcomp.model.networks.characters import char_lstm
from fedcomp.model.networks.cnn_bn import cnn4_bn, cnn8_bn
from fedcomp.random.keys import Key
from fedcomp.wire import Ledger
from tests.conformance import world
from tests.looped import looped
from tests.parts import Compressor, Dense, FedAvg, ServerSgd, Sgd
from tests.rounds import one_round, rounds

SGD, STEP, DENSE = Sgd(lr=0.1, batch_size=4, epochs=3), ServerSgd(), Compressor(Dense())


@dataclass(frozen=True)
class NeverMasked(FedMRN):
    """Progressive probability 0, and the clients' u instead of a new state."""

    def mask_probability(self, step: int, num_steps: Tensor) -> Tensor:
        return torch.zeros(num_steps.shape)

    def round(self, state: Any, cohort: Cohort, ctx: Context) -> Any:
        start = state.theta
        part = self._masked(ctx.clients.tensors)
        return self._train(start, state.stats, part, cohort, ctx), {}


@dataclass(frozen=True)
class Changes(FedAvg):
    """FedAvg's local changes instead of a new state."""

    def round(self, state: Any, cohort: Cohort, ctx: Context) -> Any:
        return train_locally(self.client, state.theta, state.stats, cohort, ctx)[0], {}


def test_progressive_probability_zero_is_fedavg_with_clipping() -> None:
    """In the second round, since the first one's result is refused where it is no state."""
    masked = world.simulation(NeverMasked(SGD, STEP, DENSE, "signed", "bernoulli", 10.0))
    (u, saturated), _ = masked.round(1, masked.init(), Ledger())
    plain = world.simulation(Changes(SGD, STEP, DENSE, DENSE))
    change, _ = plain.round(1, plain.init(), Ledger())
    assert torch.allclose(u.value, change.value, atol=1e-5)
    assert not saturated.any()
    clipping = world.simulation(NeverMasked(SGD, STEP, DENSE, "signed", "bernoulli", 0.02))
    (u, saturated), _ = clipping.round(1, clipping.init(), Ledger())
    assert saturated.mean() > 0.1
    assert not torch.allclose(u.value, change.value, atol=1e-3)


def test_draws_are_exact() -> None:
    chance = torch.tensor([-3.0, 0.0, 2.0**-24, 0.25, 0.25 + 2**-24, 0.1, 1.0, 1e9])
    for draw in (0.0, 2.0**-24, 0.25, 0.1, 1 - 2.0**-24):
        draws = torch.full_like(chance, draw)
        assert torch.equal(bernoulli(chance, draws), (draws < chance).float())


def test_share_of_a_step_is_linear_in_the_clients_own_steps() -> None:
    algorithm = FedMRN(SGD, STEP, DENSE)
    steps = torch.tensor([10, 4])
    assert algorithm.mask_probability(0, steps).tolist() == pytest.approx([0.1, 0.25])
    assert algorithm.mask_probability(3, steps).tolist() == pytest.approx([0.4, 1.0])
    fast = FedMRN(SGD, STEP, DENSE, ramp=0.5, power=2.0)
    assert fast.mask_probability(1, steps).tolist() == pytest.approx([0.16, 1.0])


@looped("mask", ["binary", "signed"])
def test_error_of_a_step_and_the_corrected_proposition_1(mask: str) -> None:
    """E||u^ - clipped||^2 = p E||masked - clipped||^2, and sqrt(mean of p over S steps) = sqrt((S + 1) / (2 S))."""
    algorithm, num, num_steps = FedMRN(SGD, STEP, DENSE, mask), 20_000, 8
    noise = algorithm.codec.draw(Key(("n",)), torch.arange(1), num)
    u = 0.005 * torch.randn(1, num, generator=Key(("u",)).generator())
    clipped = (u / noise).clamp(algorithm.codec.low, 1) * noise

    def error(share: float | None, step: int) -> float:
        draws = Key(("draw", step)).uniform(torch.arange(1), num)
        given = None if share is None else torch.tensor([[share]])
        return float((algorithm.perturbed(u, noise, draws, given) - clipped).double().square().sum())

    whole = sum(error(None, 100 + step) for step in range(num_steps)) / num_steps
    shares = [float(algorithm.mask_probability(step, torch.tensor([num_steps]))) for step in range(num_steps)]
    each = [error(share, step) for step, share in enumerate(shares)]
    assert [one / whole for one in each] == pytest.approx(shares, abs=0.05)
    factor = (sum(each) / num_steps / whole) ** 0.5
    corrected = ((num_steps + 1) / (2 * num_steps)) ** 0.5
    printed = (sum(share**2 for share in shares) / num_steps) ** 0.5
    assert factor == pytest.approx(corrected, abs=0.02)
    assert abs(factor - printed) > 0.05


@looped("mask, against", [("binary", 0.0), ("signed", -1.0)])
def test_without_draws_noise_goes_the_way_of_u_and_nowhere_at_zero(mask: str, against: float) -> None:
    algorithm = FedMRN(SGD, STEP, DENSE, mask, sm=False)
    noise, u = torch.tensor([[0.004, -0.003, 0.002, -0.001]]), torch.tensor([[0.0, 0.0, 1.0, 1.0]])
    expected = torch.tensor([[0.0, 0.0, 0.002, -0.001 * against]])
    assert torch.equal(algorithm.perturbed(u, noise, torch.zeros(1, 4), None), expected)


def test_a_step_has_the_clipped_mean() -> None:
    algorithm, num = FedMRN(SGD, STEP, DENSE, "signed"), 40_000
    noise, u = torch.tensor([0.004, -0.003, 0.001]), torch.tensor([0.002, 0.001, 0.002])
    rows = noise.expand(num, -1), Key(("d",)).uniform(torch.arange(num), 3)
    mean = algorithm.perturbed(u.expand(num, -1), rows[0], rows[1], torch.tensor([[0.3]])).double().mean(0)
    assert torch.allclose(mean, torch.tensor([0.002, 0.001, 0.001], dtype=torch.float64), atol=5e-5)


@looped("noise", ["uniform", "bernoulli"])
def test_a_round_moves_no_weight_by_more_than_alpha(noise: str) -> None:
    one = one_round(world.simulation(FedMRN(SGD, STEP, DENSE, "signed", noise, 0.01)))
    assert 0 < float((one.after.theta - one.before.theta).abs().max()) <= 0.01 * (1 + 1e-5)
    assert (one.metrics["mask/saturated"] > 0).all()


def test_without_learning_binary_masks_send_nothing_and_signed_ones_noise() -> None:
    still = Sgd(lr=1e-30, batch_size=4)
    binary = one_round(world.simulation(FedMRN(still, STEP, DENSE, "binary")))
    assert torch.equal(binary.after.theta, binary.before.theta)
    signed = list(rounds(world.simulation(FedMRN(still, STEP, DENSE, "signed", alpha=0.3), rounds=40)))
    moved = torch.stack([one.after.theta - one.before.theta for one in signed])
    expected = [0.3**2 / 3 * float(one.cohort.weight.square().sum()) for one in signed]
    assert float(moved.square().mean()) == pytest.approx(sum(expected) / len(expected), rel=0.1)
    assert abs(float(moved.mean())) < 5 * float(moved.std()) / moved.numel() ** 0.5


def test_bits_of_the_lstm_that_its_program_trains() -> None:
    """Its masks cover the LSTM's and the last layer's weights; the embedding is sent dense."""
    factory = partial(char_lstm, layers=1, bias=False, init_std=0.01)
    model = build(factory, Key(("m",)), (80,), 80, "next_token", vocab_size=80)
    part = FedMRN(SGD, STEP, DENSE)._masked(model.tensors)
    assert part.size == 290_816
    assert part.size + 64 + 32 * part.rest.size == 311_360


def test_the_papers_count_is_the_mask() -> None:
    sim = world.simulation(FedMRN(SGD, STEP, DENSE), module=world.with_batch_norm)
    one = one_round(sim)
    assert one.bits["paper/uplink"] == one.cohort.size * (sim.model.dim - 8)


@looped("make, shape, factor", [(cnn4_bn, (1, 28, 28), 27.8), (cnn8_bn, (3, 32, 32), 29.1)])
def test_the_factor_of_whole_messages_is_below_32(make: Callable[..., nn.Module], shape: Any, factor: float) -> None:
    """FedAvg's message over FedMRN's: a mask, a seed, and BatchNorm's four floats a channel; the paper says 32."""
    network = make(shape, 10)
    dim = sum(parameter.numel() for parameter in network.parameters())
    norms = [part for part in network.modules() if isinstance(part, nn.BatchNorm2d)]
    scales = stats = 2 * sum(part.num_features for part in norms)
    assert 32 * (dim + stats) / (dim - scales + 64 + 32 * (scales + stats)) == pytest.approx(factor, abs=0.05)
