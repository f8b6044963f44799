"""The rivals are honest: with one whole batch a step they are plain gradient descent, averaged over clients."""

import copy

import torch
from torch import nn
from torch.nn import functional

from scripts.lean_loop import lean_rounds
from scripts.naive_loop import naive_round


def test_naive_round_is_the_mean_of_plain_descents():
    generator = torch.Generator().manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 3))
    clients = [
        (torch.randn(6, 4, generator=generator), torch.randint(0, 3, (6,), generator=generator)) for _ in range(3)
    ]
    before = nn.utils.parameters_to_vector(module.parameters()).clone()
    got = naive_round(module, clients, batch_size=6, steps=2, lr=0.1)
    expected = []
    for x, y in clients:
        weight, bias = (value.detach().clone().requires_grad_() for value in module.parameters())
        for _ in range(2):
            grads = torch.autograd.grad(functional.cross_entropy(x @ weight.t() + bias, y), (weight, bias))
            weight, bias = ((v - 0.1 * g).detach().requires_grad_() for v, g in zip((weight, bias), grads))
        expected.append(weight.detach())
    torch.testing.assert_close(got["0.weight"], torch.stack(expected).mean(0))
    assert torch.equal(nn.utils.parameters_to_vector(module.parameters()), before)


def test_lean_rounds_are_naive_ones():
    generator = torch.Generator().manual_seed(0)
    clients = [
        (torch.randn(6, 4, generator=generator), torch.randint(0, 3, (6,), generator=generator)) for _ in range(3)
    ]
    naive = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    lean = copy.deepcopy(naive)
    run = lean_rounds(lean, clients, batch_size=6, steps=2, lr=0.1)
    for _ in range(2):
        naive.load_state_dict(naive_round(naive, clients, batch_size=6, steps=2, lr=0.1))
        run()
    for name, value in naive.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(lean.state_dict()[name], value, msg=name)
