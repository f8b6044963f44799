"""The law of S(m, alpha), and its gradients beside autograd's."""

import pytest
import torch

from fedcomp.algorithm.learnt_bits.binarised import StepSizes, binarise, probability, slopes


def test_binarise_has_the_stated_mean_and_variance() -> None:
    """Mean clip(m, -alpha, alpha), variance alpha^2 - m^2 inside, P(+) at 0, half and twice alpha; 400,000 draws."""
    alpha, num = 0.3, 400_000
    generator = torch.Generator().manual_seed(0)
    for m in (-0.6, -0.15, 0.0, 0.15, 0.3, 0.6):
        draws = torch.rand(1, num, generator=generator)
        sent = binarise(torch.full((1, num), m), torch.full((1, num), alpha), draws).double()
        inside = max(-alpha, min(alpha, m))
        assert abs(float(sent.mean()) - inside) <= 5 * (alpha**2 - inside**2) ** 0.5 / num**0.5 + 1e-7
        assert float(sent.var()) == pytest.approx(alpha**2 - inside**2, rel=1e-2, abs=1e-12)
        assert torch.allclose(sent.abs(), torch.tensor(alpha).double())
        expected = max(0.0, min(1.0, (m / alpha + 1) / 2))
        assert float(probability(torch.tensor([[m]]), torch.tensor([[alpha]])).clamp(0, 1)) == pytest.approx(expected)


def test_gradients_are_autograds() -> None:
    """Of alpha (x + stop(sign - x)) with x = clip(m / alpha, -1, 1)."""
    generator = torch.Generator().manual_seed(1)
    m = torch.randn(3, 50, generator=generator, dtype=torch.float64).requires_grad_()
    sizes = StepSizes((20, 30), 1e-9, 1e9)
    alpha = torch.rand(3, 2, generator=generator, dtype=torch.float64).add(0.3).requires_grad_()
    wide = sizes.spread(alpha)
    sent = binarise(m.detach(), wide.detach(), torch.rand(3, 50, generator=generator))
    x = (m / wide).clamp(-1, 1)
    through = wide * (x + (sent / wide - x).detach())
    g = torch.randn(3, 50, generator=generator, dtype=torch.float64)
    of_m, of_alpha = torch.autograd.grad((through * g).sum(), (m, alpha))
    inside, c = slopes(m.detach(), wide.detach(), sent)
    assert torch.allclose(g * inside, of_m, atol=1e-12)
    assert torch.allclose(sizes.sums(g * c), of_alpha, atol=1e-12)
    assert 0 < int((inside == 0).sum()) < inside.numel()


def test_a_tensor_of_zeros_sends_zero() -> None:
    sizes = StepSizes((3, 2), 5e-4, 5e-2)
    m = torch.tensor([[0.0, 0, 0, 0.01, -0.03]])
    alpha = sizes.alpha(sizes.mean_log(m))
    assert alpha.tolist() == [[0.0, pytest.approx(0.02)]]
    sent = binarise(m, sizes.spread(alpha), torch.rand(1, 5))
    assert sent[0, :3].tolist() == [0, 0, 0]
    assert all(part.isfinite().all() for part in slopes(m, sizes.spread(alpha), sent))
    assert sizes.is_free(sizes.mean_log(m)).tolist() == [[False, True]]
