"""Products of factors: what they stand for, their gradients beside autograd's, their sizes, and the first step."""

from typing import get_args

import pytest
import torch
from torch import Tensor

from fedcomp.algorithm.low_rank.factors import FactorPattern, Factors, FactorType, Product
from fedcomp.algorithm.low_rank.fedmud import FedMUD
from fedcomp.client.sgd import Sgd
from fedcomp.core.parameter_layout import WEIGHT, ParameterTensor
from fedcomp.model.contract import Model
from fedcomp.model.networks.cnn_bn import cnn4_bn
from tests.looped import looped

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


@looped("pattern", ["fab", "fab+cfd"])
@looped("kind", get_args(FactorType))
def test_the_first_step_is_g_times_the_gradient_in_the_mean(kind: str, pattern: str) -> None:
    """Over 1,000 draws of fixed factors; `distribution: auto` makes g = 1."""
    draws, slope = 1000, torch.linspace(-1, 1, 35).double()
    tensor = ParameterTensor(35, WEIGHT, 7)
    algorithm = FedMUD(Sgd(lr=0.1), kind, pattern, 0.6)
    factors = Factors(pattern, (Product.of(tensor, kind, pattern, 0.6, "memory"),))
    (product,) = factors.products
    deviation = algorithm.variance(product) ** 0.5
    assert algorithm.gain(product, algorithm.variance(product)) == pytest.approx(1.0)
    generator, moved = torch.Generator().manual_seed(0), []
    zero = torch.zeros(1, sum(factors.trained), dtype=torch.float64)
    for _ in range(draws):
        fixed = (torch.rand(sum(factors.fixed), generator=generator).double() * 2 - 1) * deviation * 3**0.5
        moved.append(factors.fold(factors.pull_back(slope[None], zero, fixed), fixed)[0])
    found = torch.stack(moved)
    error = found.std(0) / draws**0.5
    assert ((found.mean(0) - slope).abs() < 5 * error).all()
    assert float(found.mean(0) @ slope / (slope @ slope)) == pytest.approx(1.0, abs=0.15)
