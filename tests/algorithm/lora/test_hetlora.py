"""HetLoRA: means of known adapters."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import torch

from fedcomp.algorithm.lora.components import Components
from fedcomp.algorithm.lora.hetlora import HetLoRA
from fedcomp.algorithm.lora.self_pruning import SelfPruning
from fedcomp.client import Gradient
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.wire import Ledger
from tests.algorithm.lora.planted import RANKS, Planted, planted, planted_run, weights_of
from tests.conformance import world
from tests.lora_networks import lora_mlp


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


def test_a_client_gives_up_components_whose_size_fell_and_says_so() -> None:
    """Of rank 3 the components behind floor(3 / 2) = 1; a rank of 0 to 3 takes two bits, and there are two matrices."""
    sim, first, _, _ = planted_run(HetLoRA, 3, rounds=3, gamma=0.5)
    assert bool((first.ranks == 3).all())  # B was 0, and cannot fall
    theta, ledger, spent = planted(torch.tensor([9]), sim.model.dim), Ledger(), Ledger()
    state, _ = sim.round(1, replace(first, theta=theta[0]), ledger)
    layout, wanted = LoraLayout.of(sim.model.tensors), []
    for start, end in zip(layout.factors(theta), layout.factors(planted(torch.arange(7), sim.model.dim)), strict=True):
        before, after = (a[:, 1:].norm(dim=(1, 2)) * b[:, :, 1:].norm(dim=(1, 2)) for a, b in (start, end))
        wanted.append(torch.where(after < before, 1, 3))
    assert torch.equal(state.ranks, torch.stack(wanted, 1))
    assert 0 < int((state.ranks == 1).sum()) < 14
    floats = 32 * int((state.ranks @ torch.tensor([11, 9])).sum())
    assert ledger.counters()["uplink"] == floats + 7 * 2 * 2
    sim.round(2, state, spent)
    assert spent.counters()["downlink"] == floats


def test_the_penalty_is_the_product_of_the_norms_of_what_may_go() -> None:
    sim = world.simulation(HetLoRA(Planted(), gamma=0.5), partial(lora_mlp, rank=3))
    components = Components.of(sim.model.tensors)
    theta, ranks = (
        planted(torch.arange(4), sim.model.dim).requires_grad_(),
        torch.tensor([[3, 2], [1, 3], [2, 2], [3, 3]]),
    )
    with torch.no_grad():
        theta[3] = 0
    pruning, zero = SelfPruning(components, 0.5, 0.3), torch.zeros(4)
    plain = SimpleNamespace(gradient=lambda rows, batch, step: Gradient(torch.ones_like(rows), zero, zero))
    found = pruning.hook(plain, ranks, sim.key)(theta.detach(), None, 0).grad
    total = zero.sum()
    for number, (a, b) in enumerate(components.layout.factors(theta)):
        for client, rank in enumerate(ranks[:3, number].tolist()):
            q = max(1, rank // 2)
            total = total + a[client, q:rank].norm() * b[client, :, q:rank].norm()
    torch.testing.assert_close(found, 1 + 0.3 * torch.autograd.grad(total, theta)[0])
    assert pruning.fewer(ranks).tolist() == [[1, 1], [1, 1], [1, 1], [1, 1]]
