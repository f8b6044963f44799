"""Server optimisers in closed form on their first two steps."""

from __future__ import annotations

import pytest
import torch

from fedcomp.server.adam import Adam
from fedcomp.server.sgd import Sgd

UPDATE = torch.tensor([1.0, -2.0])


def test_sgd() -> None:
    optimizer = Sgd(lr=0.5)
    step, slots = optimizer.step(UPDATE, optimizer.init(UPDATE))
    assert torch.equal(step, UPDATE / 2)
    assert slots == ()


def test_momentum() -> None:
    optimizer = Sgd(lr=0.5, momentum=0.9)
    first, slots = optimizer.step(UPDATE, optimizer.init(UPDATE))
    second, _ = optimizer.step(UPDATE, slots)
    assert torch.allclose(first, UPDATE / 2)
    assert torch.allclose(second, 1.9 * UPDATE / 2)


def test_adam() -> None:
    optimizer = Adam(lr=0.1, beta1=0.9, beta2=0.99, eps=1e-3)
    first, slots = optimizer.step(UPDATE, optimizer.init(UPDATE))
    second, _ = optimizer.step(2 * UPDATE, slots)
    m, v = 0.1 * UPDATE, 0.01 * UPDATE**2
    assert torch.allclose(first, 0.1 * m / (v.sqrt() + 1e-3))
    m, v = 0.9 * m + 0.2 * UPDATE, 0.99 * v + 0.04 * UPDATE**2
    assert torch.allclose(second, 0.1 * m / (v.sqrt() + 1e-3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sgd(lr=0), "server.lr=0 must be a positive number"),
        (lambda: Sgd(momentum=1), r"server.momentum=1 must be in \[0, 1\)"),
        (lambda: Adam(eps=0), "server.eps=0 must be a positive number"),
        (lambda: Adam(beta2=1), r"server.beta2=1 must be in \[0, 1\)"),
    ],
)
def test_options_are_checked(make, message) -> None:
    with pytest.raises(ValueError, match=message):
        make()
