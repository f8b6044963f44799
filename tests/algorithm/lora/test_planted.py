"""Servers that average products, where clients end at known adapters: FLoRA, FlexLoRA, HetLoRA, LoRA-FAIR."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from fedcomp.algorithm.lora.components import Components
from fedcomp.algorithm.lora.flexlora import FlexLoRA
from fedcomp.algorithm.lora.flora import FLoRA
from fedcomp.algorithm.lora.hetlora import HetLoRA
from fedcomp.algorithm.lora.lora_fair import LoRAFAIR
from fedcomp.algorithm.lora.products import product_norms, singular, stacked
from fedcomp.algorithm.lora.self_pruning import SelfPruning
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.model.contract import Gradient, Model
from fedcomp.model.lora.moved import moved
from tests.algorithm.lora.planted import RANKS, SHARES, Planted, factors_of, planted, planted_run, products
from tests.conformance import world
from tests.looped import looped
from tests.lora_networks import lora_mlp, lora_mlp_head
from tests.parts import DENSE, Compressor, ErrorFeedback, Sgd, TopK, Uniform
from tests.rounds import one_round, rounds


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


@looped("clients, rank", [(1, 3), (4, 2), (9, 3)])
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


SGD = Sgd(lr=0.1, batch_size=4)
FOUR = (2, 1, 1, 2, 1, 1, 2)


@looped("sends", ["stack", "weights", "shortest"])
def test_the_base_moves_by_the_exact_mean_of_products(sends: str) -> None:
    """Unequal weights and ranks, two rounds that end alike; weights on both factors would differ."""
    sim, state, _ = planted_run(FLoRA, 3, rounds=2, ranks=RANKS, sends=sends)
    matrices, scale = state.change.double().split([30, 18]), 4.0 / 3
    for got, each in zip(matrices, factors_of(sim), strict=True):
        wanted = 2 * scale * sum(p * b @ a for p, (a, b) in zip(SHARES, each, strict=True))
        assert torch.allclose(got, wanted.flatten(), rtol=0, atol=1e-5)
    assert not LoraLayout.of(sim.model.tensors).b.take(state.theta).any()


def test_every_round_begins_with_new_adapters_of_the_clients_own() -> None:
    *_, solver = planted_run(FLoRA, 3, rounds=2, ranks=RANKS)
    sim = world.simulation(FLoRA(SGD), partial(lora_mlp, rank=3))
    rounds = [LoraLayout.of(sim.model.tensors).factors(rows) for rows in solver.started]
    for matrix, inputs in enumerate((5, 6)):
        a = [factors[matrix][0] for factors in rounds]
        assert not any(factors[matrix][1].any() for factors in rounds)
        assert (a[0].abs() <= inputs**-0.5).all()
        assert (a[0][2] != a[0][5]).all()  # clients
        assert (a[0][2] != a[1][2]).all()  # rounds
        assert [int(one.any(1).sum()) for one in a[0]] == list(RANKS)
    assert not torch.equal(rounds[0][0][0][:, :, :3], rounds[0][1][0][:, :, :3])


def test_bits_up_are_the_own_components_and_down_goes_the_shorter_to_all() -> None:
    for sends in ("stack", "weights", "shortest"):
        sim = world.simulation(FLoRA(SGD, FOUR, sends=sends), lora_mlp_head, Uniform(num_participants=2), rounds=6)
        for one in rounds(sim):
            stack = 11 * sum(FOUR[client] for client in one.cohort.clients)
            entries = {"stack": stack, "weights": 30, "shortest": min(stack, 30)}[sends]
            wanted = (32 * (stack + 2 * 21), 7 * 32 * (entries + 21))
            assert (one.bits["uplink"], one.bits["downlink"]) == wanted


def test_it_trains_and_is_tested_over_the_moved_base() -> None:
    sim = world.simulation(FLoRA(SGD, sends="stack"), lora_mlp, world.FULL, rounds=2)
    first = world.run(sim, last=1)
    x = sim.dataset.test.x
    before = sim.model.outputs(first.theta, first.stats, x)
    after = moved(sim.model, first.change).outputs(first.theta, first.stats, x)
    assert torch.equal(before, sim.model.outputs(sim.init().theta, first.stats, x))  # B is 0
    loss = torch.nn.functional.cross_entropy(after, sim.dataset.test.y)
    assert float(sim.test_metrics(1, first)["test/loss"]) == pytest.approx(float(loss), rel=1e-5)
    moves, unmoved = (one_round(sim, state, 1).metrics["train/loss"] for state in (first, sim.init()))
    assert not torch.allclose(moves, unmoved, rtol=1e-3)


def _means(sim, ranks=RANKS):
    return [sum(p * b @ a for p, (a, b) in zip(SHARES, each, strict=True)) for each in factors_of(sim, ranks)]


@looped("rank, ranks", [(3, RANKS), (5, RANKS), (3, None)])
def test_the_mean_product_is_kept_up_to_the_dropped_singular_values(rank: int, ranks) -> None:
    sim, state, _ = planted_run(FlexLoRA, rank, ranks=ranks)
    for got, wanted in zip(products(sim, state.theta), _means(sim, ranks or (3,) * 7), strict=True):
        dropped = torch.linalg.svdvals(wanted)[rank:].norm()
        error = torch.linalg.norm(got - wanted)
        assert torch.isclose(error, dropped, rtol=1e-5, atol=1e-5)
        assert rank == 5 or len(wanted) == 3 or error > 0.1  # the first matrix has five singular values


def test_a_client_is_sent_the_best_products_of_its_rank() -> None:
    sim, _, solver = planted_run(FlexLoRA, 3, rounds=2, ranks=RANKS)
    means = _means(sim)
    for number, (a, b) in enumerate(LoraLayout.of(sim.model.tensors).factors(solver.started[1].double())):
        u, s, vt = torch.linalg.svd(means[number])
        for client, rank in enumerate(RANKS):
            wanted = (u[:, :rank] * s[:rank]) @ vt[:rank]
            assert torch.allclose(b[client] @ a[client], wanted, rtol=0, atol=1e-5)
            assert torch.allclose(b[client].norm(dim=0)[:rank], s[:rank], rtol=1e-5)  # B has the singular values


def test_what_truncation_loses_is_kept_and_added_to_the_next_sum() -> None:
    runs = {keeps: planted_run(FlexLoRA, 2, rounds=2, ranks=None, residual=keeps) for keeps in (0, 9)}
    sim, kept, _ = runs[9]
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


def test_the_energy_of_each_rank_is_logged() -> None:
    sim, *_ = planted_run(FlexLoRA, 3, ranks=RANKS)
    metrics = one_round(sim).metrics
    squares = [torch.linalg.svdvals(mean).square() for mean in _means(sim)]
    total = sum(each.sum() for each in squares)
    for rank in (1, 2, 3):
        wanted = sum(each[:rank].sum() for each in squares) / total
        assert float(metrics[f"adapter/energy_{rank}"]) == pytest.approx(float(wanted), rel=1e-5)


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
    sim, state, _ = planted_run(HetLoRA, 3, ranks=RANKS)
    wanted = []
    for a, b, _ in _padded(sim):
        norms = torch.linalg.matrix_norm(b @ a)
        share = norms / norms.sum()
        wanted.append(((share[:, None, None] * a).sum(0), (share[:, None, None] * b).sum(0)))
    assert _close(sim, state, wanted)


def test_without_norms_and_of_one_rank_it_is_fedavg() -> None:
    sim, state, _ = planted_run(HetLoRA, 3, norms=False, weights="samples")
    mean = SHARES.double() @ planted(torch.arange(7), sim.model.dim).double()
    assert torch.allclose(state.theta.double(), mean, rtol=0, atol=1e-6)


def test_undiluted_components_are_means_of_those_who_have_them() -> None:
    ranks = (2, 1, 2, 1, 2, 2, 1)
    sim, first, _ = planted_run(HetLoRA, 3, ranks=ranks, norms=False, dilute=False, weights="samples")
    theta = planted(torch.tensor([9]), sim.model.dim)
    one = one_round(sim, replace(first, theta=theta[0]), 1)
    first = LoraLayout.of(sim.model.tensors).factors(theta.double())
    p, wanted = SHARES.double(), []
    for (a, b, has), (old_a, old_b) in zip(_padded(sim, ranks), first, strict=True):
        shares = p[:, None] * has / (p @ has.double()).clamp(min=1e-9)
        mean_a, mean_b = torch.einsum("mr,mri->ri", shares, a), torch.einsum("mr,mor->or", shares, b)
        mean_a[2], mean_b[:, 2] = old_a[0, 2], old_b[0, :, 2]  # nobody has the third
        wanted.append((mean_a, mean_b))
    assert _close(sim, one.after, wanted)
    assert wanted[0][0][2].any()
    assert wanted[0][1][:, 2].any()


def test_a_client_is_sent_the_first_components() -> None:
    sim, state, solver = planted_run(HetLoRA, 3, rounds=2, ranks=RANKS)
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
    sim, first, _ = planted_run(HetLoRA, 3, rounds=3, gamma=0.5)
    assert bool((first.ranks == 3).all())  # B was 0, and cannot fall
    theta = planted(torch.tensor([9]), sim.model.dim)
    one, another = rounds(sim, 2, replace(first, theta=theta[0]), first=1)
    state = one.after
    layout, wanted = LoraLayout.of(sim.model.tensors), []
    for start, end in zip(layout.factors(theta), layout.factors(planted(torch.arange(7), sim.model.dim)), strict=True):
        before, after = (a[:, 1:].norm(dim=(1, 2)) * b[:, :, 1:].norm(dim=(1, 2)) for a, b in (start, end))
        wanted.append(torch.where(after < before, 1, 3))
    assert torch.equal(state.ranks, torch.stack(wanted, 1))
    assert 0 < int((state.ranks == 1).sum()) < 14
    floats = 32 * int((state.ranks @ torch.tensor([11, 9])).sum())
    assert (one.bits["uplink"], another.bits["downlink"]) == (floats + 7 * 2 * 2, floats)


def test_the_penalty_is_the_product_of_the_norms_of_what_may_go() -> None:
    sim = world.simulation(HetLoRA(Planted(), gamma=0.5), partial(lora_mlp, rank=3))
    components = Components.of(sim.model.tensors)
    theta = planted(torch.arange(4), sim.model.dim).requires_grad_()
    ranks = torch.tensor([[3, 2], [1, 3], [2, 2], [3, 3]])
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


@looped("ridge", [1e-6, 0.5])
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


def test_lora_fair_has_no_error_memory() -> None:
    with pytest.raises(ValueError, match="compressor.feedback must be none: LoRA-FAIR"):
        LoRAFAIR(SGD, Compressor(TopK(0.2), ErrorFeedback()))
