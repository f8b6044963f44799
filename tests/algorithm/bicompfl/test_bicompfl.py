"""BiCompFL: who holds what after a round, what happens where nothing is learnt, other blocks of split downlinks."""

from dataclasses import fields, replace
from fractions import Fraction
from math import floor
from typing import Any

import pytest
import torch

from fedcomp.algorithm.bicompfl.bicompfl_cfl import BiCompFLCFL
from fedcomp.algorithm.bicompfl.bicompfl_gr import BiCompFLGR
from fedcomp.algorithm.bicompfl.bicompfl_pr import BiCompFLPR
from fedcomp.algorithm.bicompfl.rest import STEPS, Rest
from fedcomp.algorithm.masks.coded import MaskEstimate
from fedcomp.compressor.mrc.thresholds import quantised
from fedcomp.wire import Ledger, Link, WireLink
from tests.conformance import world
from tests.looped import looped
from tests.parts import Adam, Compressor, Dense, MRCQuantiser, MRCSign, ServerSgd, Sgd, Sign, TopK
from tests.refused import refused
from tests.thorough import thorough

SCORES, STILL = Adam(lr=0.2, batch_size=4, epochs=2), Adam(lr=1e-12, batch_size=4)
NUM = world.NUM_CLIENTS


def first_round(algorithm: Any, link: type[Link] = Link, participation: Any = world.FULL) -> Any:
    sim = world.simulation(algorithm, link=link, participation=participation)
    state, result = sim.round(0, sim.init(), Ledger())
    return sim, state, result.metrics


def test_estimates_are_counts_of_everybodys_samples() -> None:
    _, state, metrics = first_round(BiCompFLGR(client=SCORES, block=16, n_ul=3))
    assert int(state.codes.max()) <= 3 * NUM
    assert torch.equal(state.estimate, state.theta)
    assert torch.allclose(state.estimate, state.codes / (3 * NUM))
    assert set(metrics) >= {"mrc/kl_up", "mrc/above_up", "mrc/ess_up", "mask/polarisation"}


def test_a_reconstructed_mean_is_equal_for_all_but_not_the_servers() -> None:
    sim, state, metrics = first_round(BiCompFLGR(client=SCORES, block=16, reconstruct=True, n_dl=4))
    assert not torch.equal(state.estimate, state.theta)
    assert set((state.estimate * 4).unique().tolist()) <= {0.0, 1.0, 2.0, 3.0, 4.0}
    assert "mrc/kl_down" in metrics
    assert set(sim.algorithm.evaluation_models(state, sim.key)) == {"test", "expected", "threshold", "clients"}


@pytest.mark.parametrize("candidates", ["shared", *thorough(["per_client"])])
def test_without_learning_masks_drift_as_wright_and_fisher_say(candidates: str) -> None:
    """q = theta: E theta' = theta, and E[theta' (1 - theta')] = theta (1 - theta) (1 - 1 / n), until all is 0 or 1."""
    algorithm = BiCompFLGR(client=STILL, block=8, theta0=0.3, bits=16, clamp=0.001, candidates=candidates)
    sim = world.simulation(algorithm, participation=world.FULL)
    start = sim.init()
    thetas = torch.cat([sim.round(index, start, Ledger())[0].theta for index in range(150)]).double()
    error = float(thetas.std()) / len(thetas) ** 0.5
    assert abs(float(thetas.mean()) - 0.3) < 5 * error
    left = float((thetas * (1 - thetas)).mean()) / 0.21
    assert left == pytest.approx(1 - 1 / NUM, abs=0.02)
    state = start
    for index in range(120):
        state, _ = sim.round(index, state, Ledger())
    assert float(((state.theta == 0) | (state.theta == 1)).double().mean()) > 0.85


def test_one_client_alone_has_binary_masks_and_nothing_to_relay() -> None:
    ledger = Ledger()
    sim = world.simulation(BiCompFLGR(client=SCORES, block=16), participation=world.FULL, sizes=(9,))
    state, _ = sim.round(0, sim.init(), ledger)
    assert set(state.theta.tolist()) <= {0.0, 1.0}
    assert (ledger.counters()["downlink"], ledger.counters()["broadcast"]) == (0, 0)


def test_blocks_follow_the_divergence() -> None:
    """Blocks of one entry carry far too little: both strategies make longer ones in the second round."""
    for allocation in ("adaptive", "adaptive_avg"):
        algorithm = BiCompFLGR(client=SCORES, allocation=allocation, block=1, longest=64, smallest=1, n_is=256)
        sim = world.simulation(algorithm, participation=world.FULL)
        first, _ = sim.round(0, sim.init(), Ledger())
        assert bool(first.wanted[0]), allocation
        ledger = Ledger()
        second, _ = sim.round(1, first, ledger)
        assert int(second.starts.sum()) < int(first.starts.sum()), allocation
        assert bool(second.starts[0])


def test_private_models_differ_and_the_server_mirrors_them() -> None:
    sim, state, metrics = first_round(BiCompFLPR(client=SCORES, block=16))
    assert not torch.equal(state.codes[0], state.codes[1])
    assert float(metrics["mask/spread"]) > 0
    estimate = sim.algorithm.estimate(NUM)
    assert torch.allclose(state.mean, estimate.probability(state.codes, state.theta0).mean(0))
    other, again, _ = first_round(BiCompFLPR(client=SCORES, block=16), WireLink)
    assert torch.equal(state.codes, again.codes)
    assert other.algorithm == sim.algorithm


def test_an_absent_client_keeps_its_estimate() -> None:
    sim = world.simulation(BiCompFLPR(client=SCORES, block=16))
    state, result = sim.round(0, sim.init(), Ledger())
    untouched = [client for client in range(NUM) if client not in result.cohort.clients]
    marker = sim.algorithm.estimate(NUM).num + 1
    assert (state.codes[untouched] == marker).all()
    assert (state.codes[list(result.cohort.clients)] < marker).all()


def test_parts_go_round_all_blocks() -> None:
    algorithm = BiCompFLPR(client=SCORES, block=3, split_downlink=True)
    sim = world.simulation(algorithm, participation=world.FULL)
    state, marker = sim.init(), algorithm.estimate(NUM).num + 1
    for index in range(NUM):
        before = state.codes
        state, _ = sim.round(index, state, Ledger())
        left = int((state.codes == marker).sum())
        assert left < int((before == marker).sum())
        assert ((state.codes != before).sum(1) <= 3 * 4).all()
    assert left == 0
    _, taking, _ = first_round(replace(algorithm, rest="qhat"))
    assert (taking.codes < marker).all()
    decoded = (taking.codes == 0) | (taking.codes == NUM)  # one sample of the uplink, counted as NUM of the downlink's
    assert ((~decoded).sum(1) <= 3 * 4).all()
    assert (taking.codes == NUM).any(1).all()


def test_a_mixed_prior_is_the_plain_one_in_the_first_round() -> None:
    _, plain, _ = first_round(BiCompFLPR(client=SCORES, block=16))
    _, mixed, metrics = first_round(BiCompFLPR(client=SCORES, block=16, optimise_prior=True))
    assert torch.equal(plain.codes, mixed.codes)
    assert metrics["mrc/lambda"].tolist() == [1.0] * NUM
    sim = world.simulation(BiCompFLPR(client=SCORES, block=16, optimise_prior=True), participation=world.FULL)
    _, result = sim.round(1, mixed, Ledger())
    assert ((result.metrics["mrc/lambda"] >= 0) & (result.metrics["mrc/lambda"] <= 1)).all()
    assert result.metrics["mrc/lambda"].min() < 1


def test_a_prior_is_mixed_where_parts_have_arrived() -> None:
    """From the second round on, at both ends alike, though it takes as many rounds as clients until all parts came."""
    algorithm = BiCompFLPR(client=SCORES, block=3, split_downlink=True, optimise_prior=True)
    codes = []
    for link in (Link, WireLink):
        sim = world.simulation(algorithm, link=link, participation=world.FULL)
        state, lambdas = sim.init(), []
        for index in range(3):
            state, result = sim.round(index, state, Ledger())
            lambdas.append(float(result.metrics["mrc/lambda"].min()))
        assert lambdas[0] == 1
        assert max(lambdas[1:]) < 1
        codes.append(state.codes)
    assert torch.equal(*codes)


def test_the_ragged_block_is_one_for_a_client() -> None:
    """39 parameters, 7 clients: blocks of 6 are 7, of 8 only 5, which is refused."""
    first_round(BiCompFLPR(client=SCORES, block=6, split_downlink=True))


def test_estimates_are_read_alike_as_floats_and_thresholds() -> None:
    codes, theta0 = torch.tensor([[0, 1, 4, 5]], dtype=torch.uint8), torch.tensor([0.9, 0.9, 0.9, 0.2])
    clip = MaskEstimate(4, 8, 0.01, "clip")
    assert clip.probability(codes, theta0).tolist() == [[0.0, 0.25, 1.0, pytest.approx(0.2)]]
    wanted = quantised(torch.tensor([[0.01, 0.25, 0.99, 0.2]]), 8, 0.01)
    assert torch.equal(clip.thresholds(codes, theta0), wanted)
    affine = MaskEstimate(4, 8, 0.01, "affine")
    assert affine.probability(codes, theta0)[0].tolist() == pytest.approx([0.01, 0.255, 0.99, 0.2])
    assert MaskEstimate(300).dtype == torch.int32
    for num in (253, 254, 255, 256):  # the marker of an unknown code, n + 1, is one code more
        estimate = MaskEstimate(num)
        assert not estimate.known(estimate.first(theta0)).any()


@looped(
    "algorithm", [BiCompFLGR(client=SCORES, reconstruct=True), BiCompFLPR(client=SCORES), BiCompFLGR(client=SCORES)]
)
def test_affine_probabilities_are_so_at_the_server_too(algorithm: Any) -> None:
    """theta = c + (1 - 2 c) mean of one sample a client."""
    _, clip, _ = first_round(algorithm)
    _, affine, _ = first_round(replace(algorithm, form="affine", clamp=0.1))
    for state, low in ((clip, 0.0), (affine, 0.1)):
        mean = (state.theta - low) / (1 - 2 * low) * NUM
        assert torch.allclose(mean, mean.round(), atol=1e-5)
        assert (float(state.theta.min()), float(state.theta.max())) == pytest.approx((low, 1 - low))


def test_a_relayed_step_is_the_mean_of_signs_of_one_size() -> None:
    sim, state, _ = first_round(BiCompFLCFL(Sgd(lr=0.1, batch_size=4), ServerSgd(), Compressor(MRCSign(block=4))))
    steps = (state.theta - sim.init().theta) * NUM / 0.005
    assert torch.allclose(steps, steps.round(), atol=2e-3)
    assert int(steps.abs().max().round()) <= NUM


def _relayed_by_xor(codec: Any, module: Any) -> None:
    algorithm = BiCompFLCFL(SCORES, ServerSgd(), Compressor(codec), "xor")
    world.simulation(algorithm, module, participation=world.FULL).init()


@looped("module", [world.mlp, world.with_batch_norm])
@looped("codec", [MRCSign(scale="mean_abs"), Sign(), Dense(), TopK(0.2, "index")])
def test_messages_of_one_length_are_mixed(codec: Any, module: Any) -> None:
    _relayed_by_xor(codec, module)


@looped("algorithm", [BiCompFLGR, BiCompFLCFL])
def test_that_all_take_part_is_no_option(algorithm: Any) -> None:
    assert algorithm.full_participation
    assert "full_participation" not in {field.name for field in fields(algorithm)}


test_wrong_options = refused(
    [
        ({"clamp": 0.0}, "algorithm.clamp=0.0 must be"),
        ({"bits": 12}, "algorithm.bits=12 must be one of 8, 16, 32"),
        ({"weights": "samples"}, "algorithm.weights=samples must be one of uniform"),
        ({"allocation": "adaptive", "phi": 0.5}, "phi=0.5 must be"),
        ({"allocation": "adaptive", "capacity": "bytes"}, "capacity=bytes must be one of nats, bits"),
        (
            {"make": BiCompFLPR, "split_downlink": True, "rest": "qhat", "n_ul": 3, "n_dl": 10},
            "algorithm.rest=qhat needs n_dl to be a multiple of n_ul",
        ),
        (
            {"make": BiCompFLPR, "block": 8, "split_downlink": True},
            "algorithm.split_downlink needs a block for each of 7 clients: 39 parameters make 5 of algorithm.block=8",
        ),
        *(
            ({"make": BiCompFLPR, "split_downlink": True, "rest": "mix", name: 0}, rf"algorithm\.{name}=0 must be")
            for name in ("mix_share", "mix_half_after", "mix_until")
        ),
        *(
            (
                lambda codec=codec, module=module: _relayed_by_xor(codec, module),
                r"relay=xor needs messages of one length.*=plain",
            )
            for codec in (MRCQuantiser(), TopK(0.2, "rice"))
            for module in (world.mlp, world.with_batch_norm)
        ),
    ],
    lambda make=BiCompFLGR, **options: world.simulation(make(client=SCORES, **options)).init(),
)


@looped("n_ul", [1, 3])
@looped("share", [0.2, 0.03, 1.0])
def test_a_mixture_is_the_nearest_code(share: float, n_ul: int) -> None:
    """Of every code and count, against fractions; theta_0 = 1/4 stands where nothing is known yet."""
    rest = Rest("mix", share)
    num = rest.resolution(10)
    estimate, theta0 = MaskEstimate(num), torch.full((1,), 0.25)
    eta = Fraction(rest.eta(7), STEPS)
    assert (num, float(eta)) == (250, pytest.approx(share, abs=1e-6))
    for sent in range(n_ul + 1):
        codes = torch.arange(num + 2, dtype=torch.uint8)[:, None]
        found = rest.codes(codes, torch.full_like(codes, sent), n_ul, theta0, estimate, 7)[:, 0].tolist()
        old = [*map(Fraction, range(num + 1)), Fraction(63)]  # 250 * 64 / 256 = 62.5, rounded up
        assert found == [floor((1 - eta) * one + eta * Fraction(num * sent, n_ul) + Fraction(1, 2)) for one in old]


def test_the_share_falls_and_ends() -> None:
    rest = Rest("mix", 0.4, mix_half_after=10, mix_until=50)
    assert [rest.eta(t) / STEPS for t in (0, 10, 30, 50, 90)] == pytest.approx([0.4, 0.2, 0.1, 0, 0], abs=1e-6)
    assert Rest("mix").eta(10**6) == Rest("mix").eta(0) == round(0.2 * STEPS)
    codes = torch.tensor([[3, 251]], dtype=torch.uint8)
    kept = rest.codes(codes, torch.ones_like(codes), 1, torch.full((2,), 0.5), MaskEstimate(250), 50)
    assert torch.equal(kept, codes)
    assert [Rest("mix").resolution(n) for n in (1, 7, 100, 254)] == [253, 252, 200, 254]
