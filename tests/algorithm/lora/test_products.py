"""Sums of products as thin matrices."""

import pytest
import torch

from fedcomp.algorithm.lora.products import product_norms, singular, stacked


def _factors(clients: int, rank: int, inputs: int, outputs: int):
    torch.manual_seed(0)
    return torch.randn(clients, rank, inputs).double(), torch.randn(clients, outputs, rank).double()


def test_a_stack_is_the_exact_sum_and_weights_count_once() -> None:
    a, b = _factors(6, 8, 32, 24)
    for client, rank in enumerate((8, 8, 4, 4, 2, 2)):
        a[client, rank:], b[client, :, rank:] = 0, 0
    weight = torch.tensor([0.3, 0.25, 0.2, 0.15, 0.07, 0.03]).double()
    wanted = sum(w * one @ other for w, one, other in zip(weight, b, a))
    in_a, in_b = stacked((a, b), weight)
    assert torch.allclose(in_b @ in_a, wanted, rtol=0, atol=1e-13)
    assert torch.linalg.matrix_rank(in_b @ in_a) == min(24, 28)
    twice_a, _ = stacked((a, b), weight.square())  # the weight on both factors
    assert torch.linalg.norm(in_b @ twice_a - wanted) > 0.5 * torch.linalg.norm(wanted)


@pytest.mark.parametrize(("clients", "rank"), [(1, 3), (4, 2), (9, 3)])
def test_singular_values_are_those_of_the_full_sum(clients: int, rank: int) -> None:
    in_a, in_b = stacked(_factors(clients, rank, 7, 10), torch.ones(clients).double())
    u, s, vt = singular(in_a, in_b)
    full = torch.linalg.svdvals(in_b @ in_a)
    assert len(s) == min(clients * rank, 7)
    assert torch.allclose(s, full[: len(s)], rtol=0, atol=1e-12)
    assert torch.allclose((u * s) @ vt, in_b @ in_a, rtol=0, atol=1e-12)


def test_norms_of_products() -> None:
    a, b = _factors(5, 2, 7, 4)
    assert torch.allclose(product_norms((a, b)), torch.linalg.matrix_norm(b @ a), rtol=1e-12)
