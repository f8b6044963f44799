"""FlexLoRA: what the server makes of known adapters, against singular values of the full matrices."""

import pytest
import torch

from fedcomp.algorithm.lora.flexlora import FlexLoRA
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.wire import Ledger
from tests.algorithm.lora.planted import RANKS, factors_of, planted_run, products, weights_of


def _means(sim, ranks=RANKS):
    return [sum(p * b @ a for p, (a, b) in zip(weights_of(sim), each, strict=True)) for each in factors_of(sim, ranks)]


@pytest.mark.parametrize(("rank", "ranks"), [(3, RANKS), (5, RANKS), (3, None)])
def test_the_mean_product_is_kept_up_to_the_dropped_singular_values(rank: int, ranks) -> None:
    sim, state, _, _ = planted_run(FlexLoRA, rank, ranks=ranks)
    for got, wanted in zip(products(sim, state.theta), _means(sim, ranks or (3,) * 7), strict=True):
        dropped = torch.linalg.svdvals(wanted)[rank:].norm()
        error = torch.linalg.norm(got - wanted)
        assert torch.isclose(error, dropped, rtol=1e-5, atol=1e-5)
        assert rank == 5 or len(wanted) == 3 or error > 0.1  # the first matrix has five singular values


def test_a_client_is_sent_the_best_products_of_its_rank() -> None:
    sim, _, _, solver = planted_run(FlexLoRA, 3, rounds=2, ranks=RANKS)
    means = _means(sim)
    for number, (a, b) in enumerate(LoraLayout.of(sim.model.tensors).factors(solver.started[1].double())):
        u, s, vt = torch.linalg.svd(means[number])
        for client, rank in enumerate(RANKS):
            wanted = (u[:, :rank] * s[:rank]) @ vt[:rank]
            assert torch.allclose(b[client] @ a[client], wanted, rtol=0, atol=1e-5)
            assert torch.allclose(b[client].norm(dim=0)[:rank], s[:rank], rtol=1e-5)  # B has the singular values


def test_what_truncation_loses_is_kept_and_added_to_the_next_sum() -> None:
    runs = {keeps: planted_run(FlexLoRA, 2, rounds=2, ranks=None, residual=keeps) for keeps in (0, 9)}
    sim, kept, _, _ = runs[9]
    ranks = (2,) * 7
    first = _means(sim, ranks)
    algorithm, layout = sim.algorithm, LoraLayout.of(sim.model.tensors)
    for number, (a, b) in enumerate(algorithm._residuals(layout, kept.residual.double())):
        u, s, vt = torch.linalg.svd(first[number], full_matrices=False)
        lost = (u[:, 2:] * s[2:]) @ vt[2:]
        whole = products(sim, kept.theta)[number] + b @ a
        assert torch.allclose(whole, first[number] + lost, rtol=0, atol=1e-5)  # the second mean is the first
        assert lost.norm() > 0.1
        without = products(sim, runs[0][1].theta)[number]
        assert torch.allclose(without, first[number] - lost, rtol=0, atol=1e-5)
    assert runs[0][2].counters() == runs[9][2].counters()  # nothing is sent for it


def test_the_energy_of_each_rank_is_logged() -> None:
    sim, *_ = planted_run(FlexLoRA, 3, ranks=RANKS)
    _, result = sim.round(0, sim.init(), Ledger())
    squares = [torch.linalg.svdvals(mean).square() for mean in _means(sim)]
    total = sum(each.sum() for each in squares)
    for rank in (1, 2, 3):
        wanted = sum(each[:rank].sum() for each in squares) / total
        assert float(result.metrics[f"adapter/energy_{rank}"]) == pytest.approx(float(wanted), rel=1e-5)
