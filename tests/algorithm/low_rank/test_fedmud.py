"""FedMUD: products of factors and their gradients; resets, downlinks, and full rank, which is FedAvg's step."""

from dataclasses import dataclass, replace
from typing import get_args

import pytest
import torch
from torch import Tensor

from fedcomp.algorithm.low_rank.factors import FactorPattern, Factors, FactorType, Product
from fedcomp.algorithm.low_rank.fedmud import FedMUD
from fedcomp.core.parameter_layout import WEIGHT, ParameterTensor
from fedcomp.model.contract import Model
from fedcomp.model.networks.cnn_bn import cnn4_bn
from fedcomp.random.keys import Key
from tests.conformance import world
from tests.looped import looped
from tests.parts import DENSE, FedAvg, Muon, ServerSgd, Sgd
from tests.refused import refused
from tests.rounds import one_round, rounds

TENSORS = (ParameterTensor(54, WEIGHT, 18, 3), ParameterTensor(35, WEIGHT, 7))
"""A convolution of 3 x 2 channels, 3 x 3 kernels, and a linear layer of 5 x 7; as Kronecker blocks both are padded."""


def _factors(kind: str, pattern: str, ratio: float = 0.4) -> Factors:
    return Factors(pattern, tuple(Product.of(tensor, kind, pattern, ratio, "memory") for tensor in TENSORS))


def _plain(product: Product, left: Tensor, right: Tensor) -> Tensor:
    """[N] by torch's own products, of one client."""
    if not product.is_kron:
        return (left.view(product.left) @ right.view(product.right)).flatten()
    blocks = zip(left.view(product.left), right.view(product.right), strict=True)
    return torch.cat([torch.kron(one, other).flatten() for one, other in blocks])[: product.size]


def _stands_for(factors: Factors, x: Tensor, fixed: Tensor) -> Tensor:
    own, given = iter(x.split(factors.trained)), iter(fixed.split(factors.fixed) if len(fixed) else ())
    found = []
    for product in factors.products:
        if factors.pattern == "ab":
            left = next(own)
            found.append(_plain(product, left, next(own)))
        elif factors.pattern == "fab":
            found.append(_plain(product, next(given), next(own)))
        else:
            right, left = next(own), next(own)
            found.append(_plain(product, next(given), right) + _plain(product, left, next(given)))
    return torch.cat(found)


def _drawn(factors: Factors, rows: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(rows, sum(factors.trained), generator=generator, dtype=torch.float64)
    return x, torch.randn(sum(factors.fixed), generator=generator, dtype=torch.float64)


@looped("pattern", get_args(FactorPattern))
@looped("kind", get_args(FactorType))
def test_values_and_gradients(kind: str, pattern: str) -> None:
    factors = _factors(kind, pattern)
    x, fixed = _drawn(factors, 3)
    assert torch.allclose(factors.fold(x, fixed), torch.stack([_stands_for(factors, row, fixed) for row in x]))
    slope = torch.randn(3, 89, dtype=torch.float64)
    for row in range(3):
        leaf = x[row].clone().requires_grad_()
        (wanted,) = torch.autograd.grad((_stands_for(factors, leaf, fixed) * slope[row]).sum(), leaf)
        assert torch.allclose(factors.pull_back(slope, x, fixed)[row], wanted)


SIZES = [  # input, type, trained numbers, dense ones, ratio left
    ((1, 28, 28), "mat", 8064, 3808),
    ((1, 28, 28), "kron", 8200, 3808),
    ((3, 32, 32), "mat", 2016, 12_064),
    ((3, 32, 32), "kron", 2018, 12_064),
]


@looped("shape, kind, trained, dense", SIZES)
def test_sizes_of_the_papers_networks(shape, kind: str, trained: int, dense: int) -> None:
    tensors = Model(cnn4_bn(shape, 10)).tensors
    algorithm = FedMUD(Sgd(lr=0.01), kind)
    factors = algorithm.factors(tensors)
    assert sum(factors.trained) == trained
    assert algorithm.part(tensors).rest.size == dense
    assert sum(one.size for one in factors.products) == algorithm.part(tensors).size
    assert [one.size for one in factors.products] == list(algorithm.part(tensors).layers)


@looped("ratio, pattern, size, blocks", [(0.1, "fab+cfd", 400, 1), (0.1, "fab+cfd", 404, 2), (0.1, "fab", 300, 3)])
def test_blocks_are_counted_exactly(ratio: float, pattern: str, size: int, blocks: int) -> None:
    """R is ratio^2 N / 4, rounded up, or ratio^2 N of one trained factor; 0.1 squared is more than 0.01 in floats."""
    product = Product.of(ParameterTensor(size, WEIGHT, 4), "kron", pattern, ratio, "memory")
    assert product.left[0] == product.right[0] == blocks


@looped("pattern", ["fab", "fab+cfd"])
@looped("kind", get_args(FactorType))
def test_the_first_step_is_g_times_the_gradient_in_the_mean(kind: str, pattern: str) -> None:
    """Over 500 draws of fixed factors; `distribution: auto` makes g = 1."""
    draws, slope = 500, torch.linspace(-1, 1, 35).double()
    tensor = ParameterTensor(35, WEIGHT, 7)
    algorithm = FedMUD(Sgd(lr=0.1), kind, pattern, 0.6)
    factors = Factors(pattern, (Product.of(tensor, kind, pattern, 0.6, "memory"),))
    (product,) = factors.products
    assert algorithm.gain(product, algorithm.variance(product)) == pytest.approx(1.0)
    zero, moved = torch.zeros(1, sum(factors.trained), dtype=torch.float64), []
    for number in range(draws):
        fixed = algorithm._drawn(factors, slope, Key(("fixed", number)))[1].double()
        moved.append(factors.fold(factors.pull_back(slope[None], zero, fixed), fixed)[0])
    found = torch.stack(moved)
    error = found.std(0) / draws**0.5
    assert ((found.mean(0) - slope).abs() < 5 * error).all()
    assert float(found.mean(0) @ slope / (slope @ slope)) == pytest.approx(1.0, abs=0.15)


SGD = Sgd(lr=0.1, batch_size=4, epochs=2)
MUD = FedMUD(SGD, skip_first=0, skip_last=0, ratio=0.5, search=False)


@dataclass(frozen=True)
class Orthonormal(FedMUD):
    """Fixed factors F with F F^T = I, which have full rank at ratio 1."""

    def _drawn(self, factors, like, key):
        x, _ = super()._drawn(factors, like, key)
        return x, torch.cat([torch.eye(one.left[0], one.left[1]).flatten() for one in factors.products])


@pytest.mark.thorough
def test_the_search_ends_at_a_ratio_that_factors_can_have(capsys, fedcomp) -> None:
    """0.05 is 49 steps of 0.001 above the least, and in floats a little more; and what it cannot save is said."""
    for ratio in (0.02, 0.04, 0.05, 0.07):
        assert fedcomp("algorithm=fedmud", f"algorithm.ratio={ratio}", "rounds=1") == 0
        said = capsys.readouterr().err
        met = "cannot be met: of 2410 numbers 190 are trained and sent, a share of 0.0788"
        assert f"algorithm.ratio={ratio} {met}" in said
        assert "148 are the least that factors have, and 42 are dense" in said
    assert fedcomp("algorithm=fedmud", "algorithm.ratio=0.1", "rounds=1") == 0
    assert "cannot be met" not in capsys.readouterr().err


def test_full_rank_is_fedavgs_step() -> None:
    one = Sgd(lr=0.2, steps=1, batch_size=4)
    ours = world.simulation(Orthonormal(one, "mat", "fab", 1.0, False, 0, 0))
    theirs = world.simulation(FedAvg(one, ServerSgd(), DENSE, DENSE))
    assert torch.allclose(world.run(ours).theta, world.run(theirs).theta, atol=1e-6)


@looped("interval", [1, 3])
def test_resets_keep_the_model_and_move_its_base(interval: int) -> None:
    sim = world.simulation(replace(MUD, interval=interval), participation=world.FULL)
    part, factors = MUD.part(sim.model.tensors), MUD.factors(sim.model.tensors)
    for index, one in enumerate(rounds(sim, 7)):
        resets, before, after = index > 0 and index % interval == 0, one.before, one.after
        assert torch.equal(after.base, before.base) == (not resets)
        assert torch.equal(after.fixed, before.fixed) == (not resets)
        if resets:  # the factors that went into the base are the last round's
            wanted = before.base + factors.fold(before.factors[None], before.fixed)[0]
            assert torch.allclose(after.base, wanted, atol=1e-6)
        moved = factors.fold(after.factors[None], after.fixed)[0]
        assert torch.allclose(part.take(after.theta), after.base + moved, atol=1e-6)
        assert moved.norm() > 1e-3


def test_fixed_factors_differ_between_tensors_sides_and_rounds_and_repeat() -> None:
    sim = world.simulation(MUD)
    first, second = sim.init(), world.simulation(MUD).init()
    assert torch.equal(first.fixed, second.fixed)
    pieces = first.fixed.split(MUD.factors(sim.model.tensors).fixed)
    assert not any(torch.equal(one[:4], other[:4]) for place, one in enumerate(pieces) for other in pieces[:place])
    assert not torch.equal(world.run(sim, last=2).fixed, first.fixed)


def test_both_downlinks_train_the_same_model_and_count_their_bits() -> None:
    num, dense, dim = sum(MUD.factors(world.simulation(MUD).model.tensors).trained), 7, 39
    both = (rounds(world.simulation(replace(MUD, sends=sends)), 2) for sends in ("factors", "model"))
    for factors, model in zip(*both, strict=True):
        assert torch.equal(factors.after.theta, model.after.theta)
        assert factors.bits["downlink"] == 32 * (num + dense) * world.NUM_CLIENTS
        assert model.bits["downlink"] == 32 * (num + dim) * 3
        assert factors.bits["uplink"] == model.bits["uplink"] == 3 * 32 * (num + dense)


@looped("kind", ["mat", "kron"])
def test_both_trained_have_an_aggregation_error_with_more_than_one_client(kind: str) -> None:
    algorithm = replace(MUD, type=kind, pattern="ab", distribution="uniform", magnitude=0.5)
    for sizes, wrong in (((20,), False), ((20, 12), True)):
        metrics = one_round(world.simulation(algorithm, participation=world.FULL, sizes=sizes)).metrics
        assert (float(metrics["mud/aggregation_error"]) > 1e-4) == wrong


def test_the_effective_rate_is_logged() -> None:
    official = FedMUD(Sgd(lr=0.01, batch_size=4), skip_first=0, skip_last=0, distribution="uniform", magnitude=5.0)
    rate = float(one_round(world.simulation(official)).metrics["mud/effective_rate"])
    assert rate == pytest.approx(0.01 * 2 * 25 / 3, rel=1e-5)  # 0.167


test_wrong_options = refused(
    [
        ({"pattern": "ab"}, "algorithm.distribution=auto sets the first step's size, which algorithm.pattern=ab has"),
        ({"client": Muon(lr=0.1)}, "client=muon orthogonalises steps of weight matrices, and algorithm=fedmud trains"),
        (lambda: world.simulation(FedMUD(SGD)).init(), "skip_first=1 and skip_last=1 leave none of this model's"),
    ],
    lambda client=SGD, **options: FedMUD(client, **options),
)
