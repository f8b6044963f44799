"""HetLoRA: means of known adapters."""

from __future__ import annotations

import torch

from fedcomp.algorithm.lora.hetlora import HetLoRA
from fedcomp.core.lora_layout import LoraLayout
from tests.algorithm.lora.planted import RANKS, factors_of, planted, planted_run, weights_of


def _padded(sim, ranks=RANKS):
    """Of each matrix A [M, 3, i] and B [M, o, 3], filled up with zeros."""
    rows = planted(torch.arange(7), sim.model.dim).double()
    for a, b in LoraLayout.of(sim.model.tensors).factors(rows):
        has = torch.arange(3) < torch.tensor(ranks)[:, None]
        yield a * has[:, :, None], b * has[:, None], has


def _close(sim, state, wanted) -> bool:
    got = LoraLayout.of(sim.model.tensors).factors(state.theta[None].double())
    pairs = [(one[0], other) for have, want in zip(got, wanted, strict=True) for one, other in zip(have, want)]
    return all(torch.allclose(one, other, rtol=0, atol=1e-6) for one, other in pairs)


def test_clients_count_by_their_products_and_zeros_count() -> None:
    sim, state, _, _ = planted_run(HetLoRA, 3, ranks=RANKS)
    wanted = []
    for a, b, _ in _padded(sim):
        norms = torch.linalg.matrix_norm(b @ a)
        share = norms / norms.sum()
        wanted.append(((share[:, None, None] * a).sum(0), (share[:, None, None] * b).sum(0)))
    assert _close(sim, state, wanted)


def test_without_norms_and_of_one_rank_it_is_fedavg() -> None:
    sim, state, _, _ = planted_run(HetLoRA, 3, norms=False, weights="samples")
    mean = torch.tensor(weights_of(sim)).double() @ planted(torch.arange(7), sim.model.dim).double()
    assert torch.allclose(state.theta.double(), mean, rtol=0, atol=1e-6)


def test_undiluted_components_are_means_of_those_who_have_them() -> None:
    ranks = (2, 1, 2, 1, 2, 2, 1)
    sim, state, _, _ = planted_run(HetLoRA, 3, ranks=ranks, norms=False, dilute=False, weights="samples")
    first = LoraLayout.of(sim.model.tensors).factors(sim.init().theta[None].double())
    p, wanted = torch.tensor(weights_of(sim)).double(), []
    for (a, b, has), (old_a, old_b) in zip(_padded(sim, ranks), first, strict=True):
        shares = p[:, None] * has / (p @ has.double()).clamp(min=1e-9)
        mean_a, mean_b = torch.einsum("mr,mri->ri", shares, a), torch.einsum("mr,mor->or", shares, b)
        mean_a[2], mean_b[:, 2] = old_a[0, 2], old_b[0, :, 2]  # nobody has the third
        wanted.append((mean_a, mean_b))
    assert _close(sim, state, wanted)
    assert wanted[0][0][2].any()


def test_a_client_is_sent_the_first_components() -> None:
    sim, state, _, solver = planted_run(HetLoRA, 3, rounds=2, ranks=RANKS)
    layout = LoraLayout.of(sim.model.tensors)
    for (a, b), (all_a, all_b) in zip(
        layout.factors(solver.started[1]), layout.factors(state.theta[None]), strict=True
    ):
        for client, rank in enumerate(RANKS):
            assert torch.equal(a[client, :rank], all_a[0, :rank])  # both rounds end alike
            assert torch.equal(b[client, :, :rank], all_b[0, :, :rank])
            assert not a[client, rank:].any()
            assert not b[client, :, rank:].any()


def test_equal_norms_count_alike() -> None:
    sim, _, _, _ = planted_run(HetLoRA, 3)
    (a, b), *_ = LoraLayout.of(sim.model.tensors).factors(planted(torch.arange(7), sim.model.dim))
    b = b / torch.linalg.matrix_norm(b @ a)[:, None, None]
    ranks, weight = torch.full((7,), 3), torch.ones(7) / 7
    mean_a, mean_b = sim.algorithm._mean((a, b), (a[:1], b[:1]), ranks, weight)
    assert torch.allclose(mean_a[0], a.mean(0), atol=1e-6)
    assert torch.allclose(mean_b[0], b.mean(0), atol=1e-6)


def test_ranks_have_their_factors() -> None:
    sim, _, _, _ = planted_run(HetLoRA, 3, ranks=RANKS)
    assert [len(a) for a, _ in factors_of(sim)[0]] == list(RANKS)
