"""Server optimisers beside torch's, and in closed form on their first two steps."""

import pytest
import torch

from fedcomp.server.adagrad import Adagrad
from fedcomp.server.adam import Adam
from fedcomp.server.adamw import AdamW
from fedcomp.server.contract import ServerOptimizer
from fedcomp.server.sgd import Sgd
from fedcomp.server.yogi import Yogi
from tests.looped import looped

UPDATE, ZEROS = torch.tensor([1.0, -2.0]), torch.zeros(2)


TORCHS = [
    (Sgd(0.7), torch.optim.SGD, {"lr": 0.7}),
    (Sgd(0.7, 0.9), torch.optim.SGD, {"lr": 0.7, "momentum": 0.9}),
    (Sgd(0.7, 0.9, nesterov=True), torch.optim.SGD, {"lr": 0.7, "momentum": 0.9, "nesterov": True}),
    (Adagrad(0.1), torch.optim.Adagrad, {"lr": 0.1, "eps": 1e-3}),
    (AdamW(lr=0.1, weight_decay=0.3), torch.optim.AdamW, {"lr": 0.1, "weight_decay": 0.3}),
]


@looped("own, torchs, options", TORCHS)
def test_steps_are_torchs(own: ServerOptimizer, torchs: type[torch.optim.Optimizer], options: dict[str, float]) -> None:
    """The update is minus torch's gradient."""
    generator = torch.Generator().manual_seed(0)
    updates = torch.randn(20, 5, generator=generator, dtype=torch.float64)
    theta = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    reference, moved = torchs([theta], **options), torch.zeros(5, dtype=torch.float64)
    slots = own.init(moved)
    assert not isinstance(own, Sgd) or len(slots) == len(options.keys() & {"momentum"})
    for update in updates:
        step, slots = own.step(update, slots, moved)
        moved = moved + step
        theta.grad = -update
        reference.step()
        assert torch.allclose(moved, theta.detach(), rtol=0, atol=1e-12)


def test_adam() -> None:
    optimizer = Adam(lr=0.1, beta1=0.9, beta2=0.99, eps=1e-3)
    first, slots = optimizer.step(UPDATE, optimizer.init(UPDATE), ZEROS)
    second, _ = optimizer.step(2 * UPDATE, slots, ZEROS)
    m, v = 0.1 * UPDATE, 0.01 * UPDATE**2
    assert torch.allclose(first, 0.1 * m / (v.sqrt() + 1e-3))
    m, v = 0.9 * m + 0.2 * UPDATE, 0.99 * v + 0.04 * UPDATE**2
    assert torch.allclose(second, 0.1 * m / (v.sqrt() + 1e-3))


def test_yogi_nears_the_square_by_a_share_of_the_square() -> None:
    """Upwards for a larger update, downwards for a smaller one."""
    optimizer = Yogi(lr=0.1, beta1=0.9, beta2=0.5, eps=1e-3)
    _, slots = optimizer.step(UPDATE, optimizer.init(UPDATE), ZEROS)
    _, (_, larger) = optimizer.step(2 * UPDATE, slots, ZEROS)
    step, (m, smaller) = optimizer.step(0.1 * UPDATE, slots, ZEROS)
    assert torch.allclose(larger, 0.5 * UPDATE**2 + 0.5 * 4 * UPDATE**2)
    assert torch.allclose(smaller, 0.5 * UPDATE**2 - 0.5 * 0.01 * UPDATE**2)
    assert torch.allclose(m, (0.09 + 0.01) * UPDATE)
    assert torch.allclose(step, 0.1 * m / (smaller.sqrt() + 1e-3))


def test_adagrads_first_moment_is_a_mean_of_updates() -> None:
    optimizer = Adagrad(lr=0.1, beta1=0.9, eps=1e-3)
    _, slots = optimizer.step(UPDATE, optimizer.init(UPDATE), ZEROS)
    step, (m, v) = optimizer.step(2 * UPDATE, slots, ZEROS)
    assert torch.allclose(m, (0.09 + 0.2) * UPDATE)
    assert torch.allclose(v, 5 * UPDATE**2)
    assert torch.allclose(step, 0.1 * m / (v.sqrt() + 1e-3))


def test_nesterov_needs_momentum() -> None:
    with pytest.raises(ValueError, match="server.nesterov=true needs a momentum above 0: give server.momentum"):
        Sgd(nesterov=True)
