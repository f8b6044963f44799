"""Convolutions as a GPU computes them: patches by views, and the plain convolution for one client."""

import pytest
import torch
from torch.nn import functional

from fedcomp.model.batched.convolution import Convolution, unfolded_by_views
from fedcomp.model.batched.layers import Pass
from tests.looped import looped
from tests.operations import Operations
from tests.simulation.fake_gpu import GPU, fake_gpu

GEOMETRIES = [((3, 3), (1, 1), (1, 1)), ((5, 5), (1, 1), (2, 2)), ((3, 2), (2, 1), (1, 2)), ((1, 1), (1, 1), (1, 1))]


@looped("kernel, dilation, stride", GEOMETRIES)
def test_patches_by_views_are_those_of_torch(kernel, dilation, stride) -> None:
    x = torch.randn(3, 6, 11, 9, generator=torch.Generator().manual_seed(0)).requires_grad_()
    expected = functional.unfold(x, kernel, dilation, 0, stride).unflatten(1, (2, -1)).permute(1, 2, 0, 3).flatten(2)
    found = unfolded_by_views(x, kernel, dilation, stride, 2)
    assert torch.equal(found, expected)
    ours, theirs = (torch.autograd.grad(one.square().sum(), x)[0] for one in (found, expected))
    assert torch.allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize(
    ("clients", "used", "unused"), [(3, "aten::unfold", "aten::im2col"), (1, "aten::convolution", "aten::unfold")]
)
def test_what_runs_on_a_gpu(clients: int, used: str, unused: str) -> None:
    """One client's convolution, as in an evaluation, is torch's own; torch's im2col launches once for each sample."""
    layer = Convolution(0, None, (1, 1), (1, 1), (1, 1), 1, form="unfolded")
    with fake_gpu(), Operations() as watch:
        weight, x = torch.ones(clients, 4, 2, 3, 3, device=GPU), torch.ones(5, 2 * clients, 8, 8, device=GPU)
        assert layer(x, Pass([weight], [], None, True, None)).shape == (5, 4 * clients, 8, 8)
    assert used in watch.names
    assert unused not in watch.names
