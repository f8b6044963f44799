"""FedBiF: the grid, which bit a round moves, and that nothing else moves."""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import pytest
import torch
from torch import nn

from fedcomp.algorithm.learnt_bits.fedbif import FedBiF, WeightGrid
from fedcomp.client.sgd import Sgd
from fedcomp.core.parameter_layout import BIAS, ParameterSubset
from fedcomp.wire import Field, Ledger, Payload, WireLink
from fedcomp.wire.coding import Unsigned
from tests.conformance import world
from tests.looped import looped
from tests.refused import refused
from tests.rounds import one_round, rounds

SGD = Sgd(lr=0.05, batch_size=4, epochs=2)


def _part(sim) -> ParameterSubset:
    return ParameterSubset.of(sim.model.tensors, lambda tensor: tensor.kind != BIAS)


@looped("levels", ["asymmetric", "symmetric"])
@looped("bits", range(1, 9))
def test_codes_are_unbiased_and_travel(bits: int, levels: str) -> None:
    """Rounding is unbiased within the levels, for b = 1 to 8, over lengths that fill no byte; values travel whole."""
    grid = WeightGrid(bits, levels, (7, 6))
    generator = torch.Generator().manual_seed(bits)
    w = torch.randn(13, generator=generator)
    w[3], w[9] = -2.5, 3.0
    ranges = grid.ranges(w)
    alpha = grid.step(ranges)
    top = grid.spread(ranges - alpha if levels == "asymmetric" else ranges)
    assert ranges.tolist() == [2.5, 3.0]
    drawn = torch.stack(
        [grid.values(grid.quantise(w, ranges, torch.rand(13, generator=generator)), ranges) for _ in range(400)]
    )
    error = drawn.double().std(0) / 400**0.5
    assert ((drawn.double().mean(0) - torch.minimum(w, top)).abs() <= 5 * error + 1e-5).all()
    assert torch.allclose(drawn[:, 9], top[9])
    assert torch.allclose(drawn[:, 3], w[3])  # the lowest level
    codes = grid.quantise(w, ranges, torch.rand(13, generator=generator))
    assert 0 <= int(codes.min()) <= int(codes.max()) < 2**bits
    received = WireLink(Ledger()).up(Payload({"q": Field(codes[None], Unsigned(bits))}))
    assert torch.equal(received.fields["q"].data[0], codes)


def test_a_tensor_of_zeros_stays_without_nan() -> None:
    grid = WeightGrid(3, "asymmetric", (2, 3))
    w = torch.tensor([0.0, 0, 1, -2, 0.5])
    ranges = grid.ranges(w)
    codes = grid.quantise(w, ranges, torch.full((5,), 0.5))
    assert codes[:2].tolist() == [0, 0]
    assert grid.values(codes, ranges)[:2].tolist() == [0, 0]


def test_a_range_of_half_the_largest_weight_clips() -> None:
    sim = world.simulation(FedBiF(SGD, range_factor=0.5))
    state, part = sim.init(), _part(sim)
    for coded, w in zip(*(part.take(row).split(part.layers) for row in (state.coded, state.theta)), strict=True):
        assert float(coded.abs().max()) == pytest.approx(0.5 * float(w.abs().max()))


def test_the_active_bit_goes_from_the_highest_down() -> None:
    assert [FedBiF(SGD).active_bit(index) for index in range(7)] == [2, 1, 0, 2, 1, 0, 2]


class Noting(WireLink):
    """Keeps the grid that went down and the bits that came up."""

    seen: ClassVar[list] = []

    def broadcast(self, payload, receivers):
        received = super().broadcast(payload, receivers)
        if "q" in payload.fields:
            Noting.seen.append(received)
        return received

    def up(self, payload, *rest):
        received = super().up(payload, *rest)
        if "bits" in payload.fields:
            Noting.seen.append(received)
        return received


@looped("bits", [1, 3])
def test_a_round_moves_multiples_of_the_active_bit_alone(bits: int) -> None:
    sim = world.simulation(FedBiF(SGD, bits), participation=world.FULL, sizes=(20,), link=Noting)
    part = _part(sim)
    Noting.seen.clear()
    for index, one in enumerate(rounds(sim)):
        down, up = Noting.seen
        Noting.seen.clear()
        q, ranges = down.fields["q"].data[0], down.fields["range"].data[0]
        grid = WeightGrid(bits, "asymmetric", part.layers)
        before, w = grid.values(q, ranges), part.take(one.after.theta)
        worth = grid.spread(grid.step(ranges)) * 2 ** (bits - 1 - index % bits)
        ratio = (w - before) / worth
        assert torch.allclose(ratio, ratio.round(), atol=1e-4)
        assert set(ratio.round().tolist()) <= {-1.0, 0.0, 1.0}
        flips = (up.fields["bits"].data[0] != (q >> (bits - 1 - index % bits)) & 1).float().mean()
        assert float(one.metrics["bif/flips"]) == pytest.approx(float(flips))
        assert float(flips) == pytest.approx(float((ratio.round() != 0).float().mean()))
        if bits == 1:
            assert all(value in (0.0, -1.0) for value in ((w / grid.spread(ranges)).round(decimals=4).tolist()))


def test_biases_are_trained_as_floats() -> None:
    """A client's only step starts at the same weights, whatever its rate: the biases move in proportion to it."""
    moved = []
    for lr in (0.01, 0.02):
        sim = world.simulation(FedBiF(Sgd(lr=lr, batch_size=20, steps=1)), participation=world.FULL, sizes=(20,))
        one = one_round(sim)
        moved.append(_part(sim).rest.take(one.after.theta - one.before.theta))
    assert moved[0].norm() > 1e-4
    torch.testing.assert_close(moved[1], 2 * moved[0], rtol=1e-3, atol=1e-6)


def test_the_range_never_grows_and_a_rate_of_almost_nothing_moves_nothing() -> None:
    sim = world.simulation(FedBiF(Sgd(lr=1e-12, batch_size=4)), participation=world.FULL, link=Noting)
    part = _part(sim)
    grid = WeightGrid(3, "asymmetric", part.layers)
    Noting.seen.clear()
    for one in rounds(sim):
        q, ranges = (Noting.seen[0].fields[name].data[0] for name in ("q", "range"))
        Noting.seen.clear()
        assert torch.allclose(part.take(one.after.theta), grid.values(q, ranges), atol=1e-6)
        assert float(one.metrics["bif/flips"].max()) == 0
    trained = world.simulation(FedBiF(Sgd(lr=0.3, batch_size=4, epochs=3)), participation=world.FULL, rounds=20)
    ratios = [float(one.metrics["bif/range"]) for one in rounds(trained)]
    assert ratios[0] == 1
    assert all(after <= before + 1e-6 for before, after in pairwise(ratios))


def test_flips_decode_to_the_same_and_are_never_longer() -> None:
    both = (rounds(world.simulation(FedBiF(SGD, coding=coding))) for coding in ("plain", "flips"))
    for plain, flips in zip(*both, strict=True):
        assert torch.equal(plain.after.theta, flips.after.theta)
        assert flips.bits["uplink"] <= plain.bits["uplink"] + 3  # one bit of each of 3 clients says which


@dataclass(frozen=True, kw_only=True)
class Beginning(Sgd):
    """Keeps what the clients' rows begin at."""

    seen: ClassVar[list] = []

    def run(self, data, theta, *rest):
        Beginning.seen.append(theta.clone())
        return super().run(data, theta, *rest)


@looped("virtual", ["own", "shared"])
def test_virtual_bits_begin_on_the_side_of_the_present_ones(virtual: str) -> None:
    """Uniformly up to virtual_scale 2^p, p = 2, 1, 0, 2; of own draws for each client, or of one."""
    Beginning.seen.clear()
    Noting.seen.clear()
    sim = world.simulation(FedBiF(Beginning(lr=0.05, batch_size=4), virtual=virtual), link=Noting)
    part, _ = _part(sim), world.run(sim)
    for rows, down, place in zip(Beginning.seen, Noting.seen[::2], (2, 1, 0, 2), strict=True):
        v, held = part.take(rows), (down.fields["q"].data[0] >> place) & 1
        assert torch.equal(v > 0, (held == 1).expand_as(v))
        assert 0.75e-3 * 2**place < v.abs().max() < 1.001e-3 * 2**place
        assert torch.equal(v[0], v[1]) == (virtual == "shared")


def _zeros() -> nn.Module:
    layer = nn.Linear(world.NUM_FEATURES, world.NUM_CLASSES)
    return layer.requires_grad_(False).apply(lambda one: [one.weight.zero_(), one.bias.zero_()]).requires_grad_()


test_wrong_options = refused(
    [
        (lambda: FedBiF(SGD, bits=True), "algorithm.bits=true"),
        (lambda: world.simulation(FedBiF(SGD), _zeros).init(), "which are all 0 in this model and would stay 0"),
    ]
)
