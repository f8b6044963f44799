"""LoRA-FAIR: the correction of B is that of least squares, and brings the product nearer to the exact mean."""

import pytest
import torch

from fedcomp.algorithm.lora.lora_fair import LoRAFAIR
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.model.contract import Model
from tests.algorithm.lora.planted import planted
from tests.lora_networks import lora_mlp_head
from tests.parts import Compressor, Dense, ErrorFeedback, Sgd, TopK

SGD, DENSE = Sgd(lr=0.1, batch_size=4), Compressor(Dense())


@pytest.mark.parametrize("ridge", [1e-6, 0.5])
def test_b_is_corrected_by_least_squares_and_all_else_is_the_mean(ridge: float) -> None:
    layout = LoraLayout.of(Model(lora_mlp_head()).tensors)
    rows, weight = planted(torch.arange(4), layout.dim), torch.tensor([0.8, 0.6, 0.4, 0.2])
    found = LoRAFAIR(SGD, DENSE, ridge).corrected(layout, rows, weight)
    p = (weight / 2).double()
    mean = p @ rows.double()
    for part in (layout.a, layout.rest):
        torch.testing.assert_close(part.take(found).double(), part.take(mean), rtol=0, atol=1e-6)
    (((ends_a, ends_b),), ((a, b),), ((_, got),)) = (
        layout.factors(one.double()) for one in (rows, mean[None], found[None])
    )
    exact = (p[:, None, None] * (ends_b @ ends_a)).sum(0)
    loss = lambda b: (exact - b @ a[0]).square().sum() + ridge * (b - first).square().sum()  # noqa: E731
    first, at = b[0], got[0].clone().requires_grad_()
    assert torch.autograd.grad(loss(at), at)[0].abs().max() < 1e-4
    left = [float((exact - one @ a[0]).norm() / exact.norm()) for one in (b[0], got[0])]
    assert left[1] < 0.95 * left[0]


def test_wrong_options() -> None:
    with pytest.raises(ValueError, match="compressor.feedback must be none: LoRA-FAIR"):
        LoRAFAIR(SGD, Compressor(TopK(0.2), ErrorFeedback()))
