"""Server optimisers beside torch's, and in closed form on their first two steps."""

import pytest
import torch

from fedcomp.server.adam import Adam
from fedcomp.server.sgd import Sgd
from tests.looped import looped

UPDATE = torch.tensor([1.0, -2.0])


@looped("options", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}])
def test_sgd_is_torchs(options: dict[str, float]) -> None:
    """The update is minus torch's gradient."""
    generator = torch.Generator().manual_seed(0)
    updates = torch.randn(20, 5, generator=generator, dtype=torch.float64)
    theta = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    reference = torch.optim.SGD([theta], lr=0.7, **options)
    optimizer, moved = Sgd(lr=0.7, **options), torch.zeros(5, dtype=torch.float64)
    slots = optimizer.init(moved)
    assert len(slots) == len(options.keys() & {"momentum"})
    for update in updates:
        step, slots = optimizer.step(update, slots)
        moved = moved + step
        theta.grad = -update
        reference.step()
        assert torch.allclose(moved, theta.detach(), rtol=0, atol=1e-12)


def test_adam() -> None:
    optimizer = Adam(lr=0.1, beta1=0.9, beta2=0.99, eps=1e-3)
    first, slots = optimizer.step(UPDATE, optimizer.init(UPDATE))
    second, _ = optimizer.step(2 * UPDATE, slots)
    m, v = 0.1 * UPDATE, 0.01 * UPDATE**2
    assert torch.allclose(first, 0.1 * m / (v.sqrt() + 1e-3))
    m, v = 0.9 * m + 0.2 * UPDATE, 0.99 * v + 0.04 * UPDATE**2
    assert torch.allclose(second, 0.1 * m / (v.sqrt() + 1e-3))


def test_nesterov_needs_momentum() -> None:
    with pytest.raises(ValueError, match="server.nesterov=true needs a momentum above 0: give server.momentum"):
        Sgd(nesterov=True)
