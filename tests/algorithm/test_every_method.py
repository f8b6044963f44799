"""What many methods share: where a downlink sends, how clients count, normalisation, which parts go together."""

from dataclasses import dataclass
from typing import Any

import torch

from fedcomp.algorithm.bidirectional.cser import CSER
from fedcomp.algorithm.bidirectional.liec import LIEC
from fedcomp.algorithm.bidirectional.m3 import M3, MarinaP, StepAndModels
from fedcomp.algorithm.contract import Context
from fedcomp.algorithm.downlinks.downlink import CompressedDownlink, DenseModel, Downlink
from fedcomp.algorithm.downlinks.mask_counts import BetaPosterior, CountsDownlink, MaskCounts
from fedcomp.algorithm.downlinks.scalars import LastRound, ScalarDownlink, WeightedScalars
from fedcomp.algorithm.fedmrn import FedMRN
from fedcomp.algorithm.fedpm import FedPM
from fedcomp.algorithm.fedsparsify import FedSparsify
from fedcomp.algorithm.fetchsgd import FetchSGD
from fedcomp.algorithm.learnt_bits.fedbat import FedBAT
from fedcomp.algorithm.learnt_bits.fedbif import FedBiF
from fedcomp.algorithm.low_rank.fedmud import FedMUD
from fedcomp.algorithm.zeroth_order.decomfl import DeComFL
from fedcomp.algorithm.zeroth_order.fedkseed import FedKSeed
from fedcomp.compressor.projections.projection import Projection
from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from fedcomp.core.cohort import Cohort
from fedcomp.core.parameter_layout import ParameterSubset, is_normalisation
from fedcomp.random.keys import Key
from fedcomp.wire import Ledger, WireLink
from tests.conformance import world
from tests.looped import looped
from tests.parts import (
    BATCH_NORM_TENSORS,
    DENSE,
    Cohorts,
    Compressor,
    ErrorFeedback,
    PermK,
    ServerSgd,
    Sgd,
    Sign,
    TopK,
    fedavg,
    spared,
)
from tests.refused import refused
from tests.rounds import one_round, rounds

SOME = "participation=uniform participation.num_participants=3"
COINS = "participation=bernoulli participation.probability=1.0 participation.schedule={50: 0.5}"
REFUSED = [
    ("fedscalar compressor=topk", "algorithm=fedscalar has no use for compressor=topk: leave compressor at"),
    ("fedscalar compressor@downlink=sign", "algorithm=fedscalar has no use for downlink=sign: leave downlink"),
    ("fedscalar server.lr=0.5", "algorithm=fedscalar has no use for server.lr=0.5: leave server at its default, sgd"),
    ("fedscalar downlink.feedback=error", "algorithm=fedscalar has no use for downlink.feedback=error: leave downlink"),
    ("dasha downlink=randk", "algorithm=dasha has no use for downlink=randk"),
    ("fedbif server=adam", "algorithm=fedbif has no use for"),
    ("decomfl client.momentum=0.5", "algorithm=decomfl has no use for client.momentum=0.5"),
    ("fedkseed client.schedule=cosine", "algorithm=fedkseed has no use for client.schedule=cosine"),
    ("decomfl precision=bf16", "algorithm=decomfl takes differences of nearly equal losses, which precision=bf16"),
    ("fedkseed precision=bf16", "algorithm=fedkseed takes differences of nearly equal losses"),
    ("fedkseed +algorithm.weight_decay=0.1", "algorithm.weight_decay"),
    ("decomfl dataset=vectors model=mean_vector", "algorithm=decomfl needs a model of kind network"),
    ("fedbat client=adam", "algorithm=fedbat needs client=sgd, but client=adam was chosen"),
    ("m3 compressor.predictor=ef21", "algorithm=m3 has memories of its own"),
    ("marina_p compressor=topk", "algorithm.p_up=1 sends every update whole, so that TopK is never used"),
    ("fedavg algorithm.weights=even", "algorithm.weights=even must be one of samples, tokens, uniform"),
    ("tamuna participation=bernoulli", "TAMUNA needs as many clients in every round"),
    (f"tamuna algorithm.sparsity=4 {SOME}", "is above the 3 clients"),
    (f"cser {SOME}", "algorithm=cser needs every client in every round, but participation=uniform leaves some out"),
    (f"liec {SOME}", "algorithm=liec needs every client in every round, but participation=uniform leaves some out"),
    (f"streaming_diloco client.steps=2 {SOME}", "algorithm=streaming_diloco needs every client in every round"),
    *(
        (f"{name} {SOME}", f"algorithm={name} needs every client in every round")
        for name in ("dasha", "marina", "marina_p", "m3", "bicompfl_gr", "bicompfl_cfl")
    ),
    (f"cser {COINS}", "needs every client in every round, but participation=bernoulli leaves some out"),
    ("fedavg_svrg num_clients=443 dataset=diabetes model=linear dataset.test_fraction=0", "but only 442 training"),
]
ALLOWED = [
    "cser participation=uniform participation.num_participants=20",
    "marina_p compressor=topk algorithm.p_up=0.5",
    "m3 compressor=randk",
    "m3 compressor@downlink=randk downlink.k=3",
]


def _build(words: str) -> None:
    overrides = words.replace("{50: 0.5}", "{50:0.5}").split()
    build_simulation(compose([f"algorithm={overrides[0]}", *overrides[1:]]), torch.device("cpu"))


test_what_does_not_go_together_is_refused = refused([({"words": words}, line) for words, line in REFUSED], _build)


@looped("words", ALLOWED)
def test_what_goes_together_is_built(words: str) -> None:
    _build(words)


NUM_CLIENTS, DIM = 5, 6
THETA, CHANGE = torch.linspace(0.1, 0.9, DIM), torch.linspace(-1, 2, DIM)
THREE = Cohort.of((0, 2, 3), torch.full((3,), 1 / 3))
REMEMBERED = Compressor(Sign(), ErrorFeedback())
NONE = torch.zeros(0)
SCALARS, COUNTS = ScalarDownlink(Projection()), CountsDownlink(BetaPosterior(1.0, "affine", 0.01))

DOWNLINKS: dict[str, tuple[Downlink[Any, Any], Any, str]] = {
    "dense": (DenseModel(), (), "model"),
    "model": (CompressedDownlink(DENSE, "model"), DENSE.init(1, THETA), "model"),
    "update": (CompressedDownlink(REMEMBERED, "step"), REMEMBERED.init(1, THETA), "step"),
    "mean": (CompressedDownlink(REMEMBERED, "mean_update"), REMEMBERED.init(1, THETA), "mean"),
    "counts": (COUNTS, MaskCounts(torch.tensor([0.0, 1, 2, 3, 3, 1]), torch.tensor([3.0])), "model"),
    "parts": (MarinaP(Compressor(PermK()), 0.0), StepAndModels(CHANGE, THETA.expand(3, -1)), "model"),
}


@dataclass(frozen=True)
class Clients:
    """As many as there are, with a model of one tensor; no training."""

    num_clients: int = NUM_CLIENTS
    layers: tuple[int, ...] = (DIM,)


def places(downlink: Downlink[Any, Any], memory: Any, mean: Any = CHANGE) -> dict[str, tuple[float, Any]]:
    """{place at which something is sent: (receivers, what came out)}; elsewhere the very same must come out."""

    def context(ledger: Ledger) -> Context:
        return Context(1, 9, Key(("run", 0)), WireLink(ledger), Clients())  # type: ignore[arg-type]

    calls = {
        "model": (THETA, lambda ctx: downlink.model(THETA, memory, THREE, ctx)),
        "mean": (mean, lambda ctx: downlink.mean(mean, memory, THREE, ctx)),
        "step": (CHANGE, lambda ctx: downlink.step(CHANGE, memory, THREE, ctx)),
    }
    found = {}
    for place, (given, call) in calls.items():
        ledger = Ledger()
        received, _ = call(context(ledger))
        counters = ledger.counters()
        if counters["broadcast"]:
            found[place] = counters["downlink"] / counters["broadcast"], received
        else:
            assert received is given, place
    return found


@looped("name", DOWNLINKS)
def test_a_downlink_sends_at_one_place(name: str) -> None:
    downlink, memory, place = DOWNLINKS[name]
    ((found, (receivers, received)),) = places(downlink, memory).items()
    assert found == place
    assert downlink.sends_model == (place == "model")
    assert receivers == {"parts": 1}.get(name, THREE.size if place == "model" else NUM_CLIENTS)
    assert torch.isfinite(received).all()
    assert received.shape == ((3, DIM) if name == "parts" else (DIM,))


def test_scalars_are_kept_after_one_round_and_sent_in_the_next() -> None:
    first = LastRound.init(THETA, NUM_CLIENTS, SCALARS.codec)
    mean = WeightedScalars(torch.ones(3, 1), torch.arange(3))
    assert places(SCALARS, first, mean) == {}  # everybody holds the first model
    ctx = Context(0, 9, Key(("run", 0)), WireLink(Ledger()), Clients())  # type: ignore[arg-type]
    _, kept = SCALARS.mean(mean, first, THREE, ctx)
    ((place, (receivers, received)),) = places(SCALARS, kept, mean).items()
    assert (place, receivers, SCALARS.sends_model) == ("model", THREE.size, True)
    assert not torch.equal(received, THETA)  # the last model, moved by the scalars


def test_a_new_model_is_itself_where_models_are_sent_and_what_arrived_elsewhere() -> None:
    ctx = Context(1, 9, Key(("run", 0)), WireLink(Ledger()), Clients())  # type: ignore[arg-type]
    new = THETA + CHANGE
    (model, memory, _), (update, held, _) = DOWNLINKS["model"], DOWNLINKS["update"]
    assert model.send_change(THETA, new, NONE, memory, THREE, ctx)[0] is new
    arrived, _, after = update.send_change(THETA, new, NONE, held, THREE, ctx)
    torch.testing.assert_close(arrived + after.sender[0], new)
    assert not torch.allclose(arrived, new)


SGD, STEP = Sgd(lr=0.1, batch_size=4), ServerSgd()
ONE = Sgd(lr=0.1, batch_size=4, steps=1)
METHODS = (
    *(FedBAT(SGD, STEP, DENSE), FedBAT(SGD, STEP, DENSE, biases="dense"), FedBiF(SGD), FedMRN(SGD, STEP, DENSE)),
    FedPM(Sgd(lr=20.0, batch_size=4), weights="samples", clamp=0.1),
    FedSparsify(SGD, sparsity=0.5),
    FetchSGD(SGD, k=9, share=None, fraction=1.0),
    DeComFL(steps=2, perturbations=3, lr=0.01, batch_size=4, weights="samples"),
    FedKSeed(pool=20, steps=3, lr=0.01, batch_size=4),
    FedKSeed(pool=2, steps=9, lr=0.01, batch_size=4),  # which sends sums
)


@looped("algorithm", METHODS)
def test_a_client_of_weight_0_leaves_no_trace(algorithm: Any) -> None:
    alone, beside, other = (
        one_round(world.in_float64(world.simulation(algorithm, participation=Cohorts((who,), weight)))).after.theta
        for who, weight in (((1,), (1.0,)), ((1, 4), (1.0, 0.0)), ((1, 4), (0.75, 0.25)))
    )
    torch.testing.assert_close(beside, alone, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(other, alone, rtol=1e-3, atol=1e-4)


PART = ParameterSubset.of(BATCH_NORM_TENSORS, is_normalisation)
SIGN, SPARED = Compressor(Sign(granularity="model")), spared(Compressor(Sign(granularity="model")))
TOPK, PERMK = Compressor(TopK()), Compressor(PermK())


def _simulation(algorithm):
    return world.simulation(algorithm, world.with_batch_norm, world.FULL)


@looped("algorithm", [FedMRN(ONE, STEP, DENSE), FedBAT(ONE, STEP, DENSE), FedBiF(ONE, 16)])
def test_the_first_step_of_what_is_sent_dense_is_fedavgs(algorithm: Any) -> None:
    """Nothing is masked or binarised yet, and sixteen bits are hardly a change of the weights."""
    moved, wanted = (PART.take(one_round(_simulation(one)).after.theta) for one in (algorithm, fedavg(ONE)))
    torch.testing.assert_close(moved, wanted, rtol=0, atol=1e-4)


WEIGHTS, BIASES, WHOLE = 32, 3, 43
"""Entries of the network's two matrices, of its bias, and of all with 8 of normalisation, which papers leave out."""
CODED = WEIGHTS + BIASES
PAPER = [  # bits that the method's paper counts of a client's message up, and of one down
    (FedMRN(SGD, STEP, DENSE), CODED, 32 * WHOLE),
    (FedBAT(SGD, STEP, DENSE), CODED + 3 * 32, 32 * WHOLE),
    (FedBiF(SGD, 3), WEIGHTS, 3 * WEIGHTS),
    (FedPM(SGD, batchnorm_training="trained"), CODED, 32 * CODED),
    (FedSparsify(SGD, sparsity=0.5), 32 * WEIGHTS // 2, 32 * WHOLE),
    (FedMUD(SGD, "mat", skip_first=0), 32 * (9 + 12 + BIASES), 32 * (9 + 12 + BIASES)),  # 9 factors for 20 weights
]


@looped("algorithm, up, down", PAPER)
def test_what_the_papers_count(algorithm: Any, up: int, down: int) -> None:
    bits = one_round(_simulation(algorithm)).bits
    assert (bits["paper/uplink"], bits["paper/broadcast"]) == (world.NUM_CLIENTS * up, down)


@looped("uplink", [SPARED, SIGN])
def test_cser_leaves_nothing_of_them_out(uplink) -> None:
    state = world.run(_simulation(CSER(SGD, STEP, uplink, DENSE, period=2)))
    exact = uplink is SPARED
    assert bool(PART.take(state.error).any()) != exact
    assert torch.equal(PART.take(state.theta), PART.take(state.theta[:1]).expand(world.NUM_CLIENTS, -1)) == exact
    assert PART.rest.take(state.error).any()


@looped("fused", [False, True])
def test_liec_remembers_nothing_of_them_and_averages_the_rest(fused: bool) -> None:
    sim = _simulation(LIEC(SGD, STEP, SPARED, SPARED, 3, fused))
    state = world.run(sim, last=2)
    assert state.downlink.sender.shape == (1, sim.model.dim - PART.size)
    assert state.downlink.sender.any()
    assert torch.equal(PART.take(state.theta), PART.take(state.theta[:1]).expand(world.NUM_CLIENTS, -1))
    state = one_round(sim, state, 2).after
    assert torch.equal(state.theta, state.theta[:1].expand(world.NUM_CLIENTS, -1))
    assert not state.downlink.sender.any()


def test_m3_sends_them_whole_both_ways() -> None:
    *_, one = rounds(_simulation(M3(SGD, STEP, spared(TOPK), spared(PERMK), p_down=0, p_up=0)))
    before, after = one.before.theta, one.after
    assert torch.allclose(PART.take(after.models), PART.take(before).expand(world.NUM_CLIENTS, -1), atol=1e-6)
    assert not torch.allclose(PART.rest.take(after.models), PART.rest.take(before), atol=1e-6)
    assert torch.allclose(PART.take(after.update), PART.take(after.base).mean(0), atol=1e-6)
    assert torch.allclose(one.metrics["models/spread"], (after.models - one.before.theta).square().sum(1).mean())


def test_m3_shares_out_the_compressed_entries_alone() -> None:
    num, rest, beside = world.NUM_CLIENTS, PART.rest.size, 32 * (PART.size + 2 * 4)
    topk = spared(Compressor(TopK(positions="index")))
    _, second = rounds(_simulation(M3(SGD, STEP, topk, spared(PERMK), p_up=0)), 2)
    kept = rest // num
    assert second.bits["uplink"] == num * (kept * (32 + (rest - 1).bit_length()) + beside)
