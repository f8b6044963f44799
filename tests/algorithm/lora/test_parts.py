"""Methods that train or send a part of the adapters: RoLoRA, FFA-LoRA, FLASC, FedSRD. A has 22 entries, B 18."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from fedcomp.algorithm.lora.fedsa_lora import FedSALoRA
from fedcomp.algorithm.lora.fedsrd import FedSRD, kurtosis
from fedcomp.algorithm.lora.ffa_lora import FFALoRA
from fedcomp.algorithm.lora.flasc import FLASC
from fedcomp.algorithm.lora.lora_fair import LoRAFAIR
from fedcomp.algorithm.lora.rolora import RoLoRA
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.server.adamw import AdamW
from tests.algorithm.lora.planted import SHARES, planted, planted_run, products
from tests.conformance import world
from tests.looped import looped
from tests.lora_networks import lora_mlp, lora_mlp_b, lora_mlp_head
from tests.parts import DENSE, Adam, Compressor, FedAvg, Muon, ServerSgd, Sgd, TopK
from tests.refused import refused
from tests.rounds import one_round, rounds

ADAM = Adam(lr=0.1, batch_size=4, weight_decay=0.1, decoupled=True)
A, B = 22, 18


@looped("module", [lora_mlp, lora_mlp_head])
def test_a_client_is_sent_what_it_misses(module) -> None:
    """The head, if there is one, is trained in every round."""
    sim = world.simulation(RoLoRA(Sgd(lr=0.1, batch_size=4), DENSE), module, rounds=8)
    layout, last, kinds = LoraLayout.of(sim.model.tensors), {}, set()
    sizes, head = (layout.b.size, layout.a.size), layout.rest.size
    for index, one in enumerate(rounds(sim)):
        down = 0
        for client in one.cohort.clients:
            since = last.get(client, 0)
            halves = {before % 2 for before in range(since, index)}
            down += 32 * (sum(sizes[half] for half in halves) + head * bool(halves))
            kinds.add(tuple(halves))
            last[client] = index
        assert (one.bits["uplink"], one.bits["downlink"]) == (3 * 32 * (sizes[index % 2] + head), down)
    assert kinds == {(), (0,), (1,), (0, 1)}


def test_the_half_that_rests_is_the_same_bit_for_bit() -> None:
    sim = world.simulation(RoLoRA(ADAM, DENSE), lora_mlp)
    layout = LoraLayout.of(sim.model.tensors)
    for index, one in enumerate(rounds(sim)):
        trained, rests = (layout.a, layout.b) if index % 2 else (layout.b, layout.a)
        assert torch.equal(rests.take(one.before.theta), rests.take(one.after.theta))
        assert not torch.equal(trained.take(one.before.theta), trained.take(one.after.theta))


def test_a_round_of_a_before_one_of_b_would_be_lost() -> None:
    one = one_round(world.simulation(RoLoRA(Sgd(lr=0.1, batch_size=4), DENSE), lora_mlp), index=1)
    assert torch.equal(one.after.theta, one.before.theta)


test_models_solvers_and_options_that_they_are_not_for = refused(
    [
        *(
            (lambda method=method: world.simulation(method, lora_mlp_b).init(), "take model.trains=both")
            for method in (RoLoRA(ADAM, DENSE), FedSALoRA(ADAM, DENSE), LoRAFAIR(ADAM, DENSE))
        ),
        (lambda: world.simulation(RoLoRA(ADAM, DENSE)).init(), "has no low-rank adapters"),
        (lambda: RoLoRA(Muon(lr=0.1), DENSE), "take client=sgd, adam or adamw"),
        (lambda: world.simulation(FFALoRA(ADAM, ServerSgd(), DENSE, DENSE), lora_mlp).init(), "take model.trains=b"),
        (lambda: FedSRD(SGD, 0.9, 0.2), "algorithm.base . algorithm.upper is 1.1, but must be below 1"),
    ]
)


MOMENTUM = Sgd(lr=0.1, batch_size=4, momentum=0.9)
FLASC_025 = FLASC(MOMENTUM, AdamW(), Compressor(TopK(0.25)))


@looped("mask", ["model", "update"])
def test_with_densities_of_1_it_is_fedavg_bit_for_bit(mask: str) -> None:
    methods = FLASC(MOMENTUM, AdamW(), DENSE, 1.0, mask), FedAvg(MOMENTUM, AdamW(), DENSE, DENSE, "uniform")
    for flasc, fedavg in zip(*(rounds(world.simulation(method, lora_mlp)) for method in methods), strict=True):
        assert torch.equal(flasc.after.theta, fedavg.after.theta)
        assert flasc.bits == fedavg.bits


def test_a_first_download_of_the_models_entries_has_no_b() -> None:
    """k_d = 10 of 40; what was learnt since the first model is 0 then, so that nobody misses anything by `update`."""
    sim = world.simulation(FLASC_025, lora_mlp)
    first, layout = sim.init().theta, LoraLayout.of(sim.model.tensors)
    masked = FLASC_025.down.masked(first, first)
    assert int(masked.count_nonzero()) == 10
    assert int(layout.b.take(masked).count_nonzero()) == 0
    assert masked.abs()[masked != 0].min() >= first[masked == 0].abs().max()
    assert torch.equal(replace(FLASC_025, mask="update").down.masked(first, first), first)


def test_a_first_download_of_what_was_learnt_costs_nothing() -> None:
    first, second = rounds(world.simulation(replace(FLASC_025, mask="update"), lora_mlp), 2)
    assert first.bits["broadcast"] == 0
    assert 10 * 32 < second.bits["broadcast"] < 10 * 32 + 40  # the gaps' Rice code beats a bitmap


@pytest.mark.parametrize("mask", ["model", "update"])
def test_what_is_tested_is_what_the_next_cohort_is_sent(mask: str, monkeypatch) -> None:
    sim = world.simulation(replace(FLASC_025, mask=mask), lora_mlp)
    state, got = world.run(sim), []
    tested = sim.algorithm.evaluation_models(state, sim.key)["test"].theta[0]
    real = FLASC_025.down.__class__.model
    monkeypatch.setattr(
        "fedcomp.algorithm.lora.flasc.MaskedModel.model", lambda *args: got.append(real(*args)) or got[-1]
    )
    one_round(sim, state, 3)
    assert torch.equal(got[0][0], tested)
    assert not torch.equal(tested, state.theta)


SGD = Sgd(lr=0.1, batch_size=4)


@looped("base, upper, curve", [(0.85, 0.11, 0.1), (0.5, 0.3, 0.5)])
def test_what_is_kept_is_important_and_has_the_norm_of_the_whole(base, upper, curve) -> None:
    sim, *_ = planted_run(FedSRD, 5)
    layout, theta = LoraLayout.of(sim.model.tensors), planted(torch.tensor([9]), sim.model.dim)[0]
    change = planted(torch.arange(3), sim.model.dim)
    kept, scale = FedSRD(SGD, base, upper, curve).kept(layout, theta, change)
    for (da, db), (a0, b0), masks, scales in zip(
        *(layout.factors(rows) for rows in (change, theta[None], kept, scale)), strict=True
    ):
        for client in range(3):
            to_a, to_b = (b0[0] + db[client]).norm(dim=0)[:, None], a0[0].norm(dim=1)
            for whole, length, mask, factor in ((da, to_a, masks[0], scales[0]), (db, to_b, masks[1], scales[1])):
                size = whole[client].abs() * length
                share = base + min(upper, curve * math.log(float(kurtosis(size.flatten()[None]))))
                num = size.numel() - math.floor(share * size.numel())
                assert int(mask[client].sum()) == num
                assert size[mask[client]].min() >= size[~mask[client]].max()
                left = (whole[client] * factor[client])[mask[client]].abs().sum()
                torch.testing.assert_close(left, whole[client].abs().sum())


def test_kurtosis_is_that_of_the_entries() -> None:
    x = torch.tensor([[1.0, 2, 3, 6], [2, 2, 2, 2], [0, 1, 0, 1]])
    assert kurtosis(x).tolist() == pytest.approx([(16 + 1 + 0 + 81) / 4 / (14 / 4) ** 2, 1, 1])


@looped("role", ["A", "B"])
@looped("truncates", [True, False])
def test_the_step_is_the_change_of_the_mean_product_in_the_others_space(role: str, truncates: bool) -> None:
    sim, *_ = planted_run(FedSRD, 2)
    layout, weight = LoraLayout.of(sim.model.tensors), SHARES
    theta, change = planted(torch.tensor([9]), sim.model.dim), planted(torch.arange(7), sim.model.dim)
    step = FedSRD(SGD, truncates=truncates).projected(layout, theta[0], change, weight, role)
    steps, starts, ends = (layout.factors(rows.double()) for rows in (step[None], theta, theta + change))
    for (da, db), (a0, b0), (a, b) in zip(steps, starts, ends, strict=True):
        mean = (weight.double()[:, None, None] * (b @ a)).sum(0)
        u, s, vt = torch.linalg.svd(mean, full_matrices=False)
        target = (u[:, :2] * s[:2]) @ vt[:2] if truncates else mean
        change_of_product = target - b0[0] @ a0[0]
        wanted_a, wanted_b = torch.linalg.pinv(b0[0]) @ change_of_product, change_of_product @ torch.linalg.pinv(a0[0])
        torch.testing.assert_close(da[0], wanted_a if role == "A" else torch.zeros_like(da[0]), rtol=0, atol=1e-5)
        torch.testing.assert_close(db[0], wanted_b if role == "B" else torch.zeros_like(db[0]), rtol=0, atol=1e-5)


def test_rows_of_b_that_nobody_changes_stay_0() -> None:
    """Rounding's 1e-17 there would be all of B where nothing else of it comes down, and a step of A divides by B."""
    sim, *_ = planted_run(FedSRD, 2)
    layout = LoraLayout.of(sim.model.tensors)
    rows = planted(torch.arange(7), sim.model.dim)
    still = layout.put(rows, [(a, b * (torch.arange(b.shape[1]) != 1)[:, None]) for a, b in layout.factors(rows)])
    theta = layout.b.put(still[0], torch.zeros(layout.b.size))
    step = FedSRD(SGD).projected(layout, theta, still, SHARES, "B")
    for _, b in layout.factors(step[None]):
        assert bool(b.any())
        assert not bool(b[0, 1].any())


def test_a_first_round_of_a_changes_nothing_and_one_of_b_does() -> None:
    for first, moves in (("a", False), ("b", True)):
        sim = world.simulation(FedSRD(SGD, first=first, drop=0.0), lora_mlp)
        state, start = world.run(sim, last=1), sim.init().theta
        assert torch.equal(state.theta, start) is not moves
        assert any(bool(product.any()) for product in products(sim, state.theta)) is moves
        a = LoraLayout.of(sim.model.tensors).a
        assert torch.equal(a.take(state.theta), a.take(start))


@pytest.mark.parametrize(("drop", "seed_cost", "seed"), [(0.9, "sent", 64), (0.5, "derived", 0)])
def test_bits_are_floats_their_places_and_the_masks_seed(drop: float, seed_cost: str, seed: int, monkeypatch) -> None:
    """A has 10 entries, B 12, the head 21."""
    real, masks = FedSRD.kept, []
    monkeypatch.setattr(FedSRD, "kept", lambda *given: masks.append(real(*given)) or masks[-1])
    sim = world.simulation(FedSRD(SGD, drop=drop, seed_cost=seed_cost), lora_mlp_head)
    for one, half in zip(rounds(sim, 2), (12, 10), strict=True):
        kept = [mask[:22].nonzero()[:, 0].tolist() for mask in masks[-1][0]]
        down = 32 * (round((1 - drop) * half) + 21) + seed
        assert one.bits["uplink"] == sum(32 * (len(places) + 21) + _bits_of_places(places) for places in kept)
        assert (one.bits["broadcast"], one.bits["downlink"]) == (down, 7 * down)
        assert one.metrics["adapter/pruned"].tolist() == pytest.approx([1 - len(places) / 22 for places in kept])


def _bits_of_places(places: list[int]) -> int:
    """Their number of 0 to 22, which of 16 Rice codes, and the gaps in the shortest."""
    gaps = [place - before - 1 for before, place in pairwise([-1, *places])]
    return 5 + 4 + min(sum((gap >> low) + 1 + low for gap in gaps) for low in range(16))
