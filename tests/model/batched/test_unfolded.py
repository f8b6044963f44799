"""Convolutions as products over patches: outputs and gradients of torch's own, in pieces that no cohort changes."""

import torch
from torch.nn import functional

from fedcomp.model.batched.convolution import Convolution
from fedcomp.model.batched.layers import Pass
from fedcomp.model.batched.unfolded import TILE, convolved, patches_of, pieces
from tests.looped import looped
from tests.operations import Operations
from tests.simulation.fake_gpu import GPU, fake_gpu

ONE = (1, 1)
GEOMETRIES = [((3, 3), ONE, ONE, 1), ((5, 5), ONE, (2, 2), 2), ((3, 2), (2, 1), (1, 2), 1), (ONE, ONE, ONE, 2)]
"""Sides of the kernel, dilation, stride, groups."""


@looped("channels_last", [True, False])
@looped("kernel, dilation, stride, groups", GEOMETRIES)
def test_outputs_and_gradients_are_those_of_a_convolution(kernel, dilation, stride, groups, channels_last) -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (
        torch.randn(size, generator=generator, dtype=torch.float64)
        for size in [(8, 3 * 4, 20, 18), (3, 6, 4 // groups, *kernel), (3, 6)]
    )
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    leaves = [leaf.requires_grad_() for leaf in (x, weight, bias)]
    for add, wanted in ((bias, leaves), (None, leaves[:2]), (bias, leaves[1:])):  # a first layer's input wants none
        given = x if wanted[0] is x else x.detach()
        found = convolved(given, weight, add, (stride, dilation, groups))
        flat = None if add is None else add.flatten()
        expected = functional.conv2d(given, weight.flatten(0, 1), flat, stride, 0, dilation, 3 * groups)
        above = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
        assert found.is_contiguous(memory_format=torch.channels_last)
        ours, theirs = (torch.autograd.grad(y, wanted, above) for y in (found, expected))
        for one, other in zip((found, *ours), (expected, *theirs), strict=True):
            assert torch.allclose(one, other, rtol=1e-10, atol=1e-10)
    assert pieces(8 * 16 * 14, 6, 4 * 9) > 1  # the first geometry's weights are summed in pieces


@looped("kernel, dilation, stride, groups", GEOMETRIES)
def test_patches_are_those_of_torch(kernel, dilation, stride, groups) -> None:
    x = torch.randn(3, 6, 11, 9, generator=torch.Generator().manual_seed(0))
    expected = functional.unfold(x, kernel, dilation, 0, stride).unflatten(1, (2, 3, -1))  # [B, G, C, k*k, L]
    found = patches_of(x, kernel, dilation, stride, 2).flatten(4, 5).flatten(2, 3)  # [G, B, L, k*k, C]
    assert torch.equal(found.permute(1, 0, 4, 3, 2), expected)


def test_weights_are_summed_in_pieces_of_one_size() -> None:
    for num_patches, rows, values in ((50_176, 6, 25), (6_400, 16, 150), (100_352, 64, 9), (7_840, 6, 25)):
        num = pieces(num_patches, rows, values)
        assert num_patches % num == 0
        assert num > 10
    assert pieces(1_024, 256, 1_152) == 1  # enough blocks without
    assert pieces(TILE, 1, 1) == pieces(10_007, 1, 1) == 1  # nothing to divide, no divisor


def test_relu_in_place_may_follow() -> None:
    """As in many networks; what a `torch.autograd.Function` returns must not be a view then."""
    x, weight = torch.ones(2, 3, 5, 5, requires_grad=True), torch.ones(3, 4, 1, 3, 3, requires_grad=True)
    y = functional.relu(convolved(x, weight, None, (ONE, ONE, 1)), inplace=True)
    assert torch.autograd.grad(y.sum(), x)[0].sum() == 2 * 3 * 4 * 9 * 9


@looped("clients, used, unused", [(3, "aten::unfold", "aten::im2col"), (1, "aten::convolution", "aten::unfold")])
def test_what_runs_on_a_gpu(clients: int, used: str, unused: str) -> None:
    """One client's convolution, as in an evaluation, is torch's own; torch's im2col launches once for each sample."""
    layer = Convolution(0, None, (1, 1), (1, 1), (1, 1), 1, form="unfolded")
    with fake_gpu(), Operations() as watch:
        weight, x = torch.ones(clients, 4, 2, 3, 3, device=GPU), torch.ones(5, 2 * clients, 8, 8, device=GPU)
        assert layer(x, Pass([weight], [], None, True, None)).shape == (5, 4 * clients, 8, 8)
    assert used in watch.names
    assert unused not in watch.names
