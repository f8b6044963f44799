"""BiCompFL: who holds what after a round, what happens where nothing is learnt, other blocks of split downlinks."""

from dataclasses import replace
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
from fedcomp.random.keys import Key
from tests.conformance import world
from tests.looped import looped
from tests.parts import Adam, Compressor, Dense, MRCQuantiser, MRCSign, ServerSgd, Sgd, Sign, TopK
from tests.refused import refused
from tests.rounds import Round, one_round, rounds
from tests.thorough import thorough

SCORES, STILL = Adam(lr=0.2, batch_size=4, epochs=2), Adam(lr=1e-12, batch_size=4)
NUM = world.NUM_CLIENTS


def first_round(algorithm: Any) -> Round:
    return one_round(world.simulation(algorithm, participation=world.FULL))


def test_estimates_are_counts_of_everybodys_samples() -> None:
    one = first_round(BiCompFLGR(client=SCORES, block=16, n_ul=3))
    assert int(one.after.codes.max()) <= 3 * NUM
    assert torch.equal(one.after.estimate, one.after.theta)
    assert torch.allclose(one.after.estimate, one.after.codes / (3 * NUM))
    assert set(one.metrics) >= {"mrc/kl_up", "mrc/above_up", "mrc/ess_up", "mask/polarisation"}


def test_a_reconstructed_mean_is_equal_for_all_but_not_the_servers() -> None:
    algorithm = BiCompFLGR(client=SCORES, block=16, reconstruct=True, n_dl=4)
    one = first_round(algorithm)
    assert not torch.equal(one.after.estimate, one.after.theta)
    assert set((one.after.estimate * 4).unique().tolist()) <= {0.0, 1.0, 2.0, 3.0, 4.0}
    assert "mrc/kl_down" in one.metrics
    assert set(algorithm.evaluation_models(one.after, Key())) == {"test", "expected", "threshold", "clients"}


@pytest.mark.parametrize("candidates", ["shared", *thorough(["per_client"])])
def test_without_learning_masks_drift_as_wright_and_fisher_say(candidates: str) -> None:
    """q = theta: E theta' = theta, and E[theta' (1 - theta')] = theta (1 - theta) (1 - 1 / n), until all is 0 or 1."""
    algorithm = BiCompFLGR(client=STILL, block=8, theta0=0.3, bits=16, clamp=0.001, candidates=candidates)
    sim = world.simulation(algorithm, participation=world.FULL)
    start = sim.init()
    thetas = torch.cat([one_round(sim, start, index).after.theta for index in range(80)]).double()
    error = float(thetas.std()) / len(thetas) ** 0.5
    assert abs(float(thetas.mean()) - 0.3) < 5 * error
    left = float((thetas * (1 - thetas)).mean()) / 0.21
    assert left == pytest.approx(1 - 1 / NUM, abs=0.02)
    *_, last = rounds(sim, 60)
    assert float(((last.after.theta == 0) | (last.after.theta == 1)).double().mean()) > 0.85


def test_one_client_alone_has_binary_masks_and_nothing_to_relay() -> None:
    one = one_round(world.simulation(BiCompFLGR(client=SCORES, block=16), participation=world.FULL, sizes=(9,)))
    assert set(one.after.theta.tolist()) <= {0.0, 1.0}
    assert (one.bits["downlink"], one.bits["broadcast"]) == (0, 0)


def test_blocks_follow_the_divergence() -> None:
    """Blocks of one entry carry far too little: both strategies make longer ones in the second round."""
    for allocation in ("adaptive", "adaptive_avg"):
        algorithm = BiCompFLGR(client=SCORES, allocation=allocation, block=1, longest=64, smallest=1, n_is=256)
        assert algorithm.strategy.two_sided == (allocation == "adaptive_avg")
        first, second = rounds(world.simulation(algorithm, participation=world.FULL), 2)
        assert bool(first.after.wanted[0]), allocation
        assert int(second.after.starts.sum()) < int(first.after.starts.sum()), allocation
        assert bool(second.after.starts[0])


def test_private_models_differ_and_the_server_mirrors_them() -> None:
    algorithm = BiCompFLPR(client=SCORES, block=16)
    one = first_round(algorithm)
    assert not torch.equal(one.after.codes[0], one.after.codes[1])
    assert float(one.metrics["mask/spread"]) > 0
    mirrored = algorithm.estimate(NUM).probability(one.after.codes, one.after.theta0)
    assert torch.allclose(one.after.mean, mirrored.mean(0))


def test_parts_go_round_all_blocks() -> None:
    algorithm = BiCompFLPR(client=SCORES, block=3, split_downlink=True)
    marker = algorithm.estimate(NUM).num + 1
    for one in rounds(world.simulation(algorithm, participation=world.FULL), NUM):
        left = int((one.after.codes == marker).sum())
        assert left < int((one.before.codes == marker).sum())
        assert ((one.after.codes != one.before.codes).sum(1) <= 3 * 4).all()
    assert left == 0
    taking = first_round(replace(algorithm, rest="qhat")).after
    assert (taking.codes < marker).all()
    decoded = (taking.codes == 0) | (taking.codes == NUM)  # one sample of the uplink, counted as NUM of the downlink's
    assert ((~decoded).sum(1) <= 3 * 4).all()
    assert (taking.codes == NUM).any(1).all()
    mixing = replace(algorithm, rest="mix")
    finest = first_round(mixing).after.codes
    assert int(finest.max()) == mixing.estimate(NUM).num == 36 * NUM, "what was sent, counted as 36 times as many"


def test_a_mixed_prior_is_the_plain_one_in_the_first_round_alone() -> None:
    (plain, later), (first, second) = (
        rounds(world.simulation(BiCompFLPR(client=SCORES, block=16, optimise_prior=mixed), participation=world.FULL), 2)
        for mixed in (False, True)
    )
    assert torch.equal(plain.after.codes, first.after.codes)
    assert not torch.equal(later.after.codes, second.after.codes)
    assert first.metrics["mrc/lambda"].tolist() == [1.0] * NUM
    assert ((second.metrics["mrc/lambda"] >= 0) & (second.metrics["mrc/lambda"] <= 1)).all()
    assert second.metrics["mrc/lambda"].min() < 1


def test_a_prior_is_mixed_where_parts_have_arrived() -> None:
    """From the second round on, though it takes as many rounds as clients until all parts came."""
    algorithm = BiCompFLPR(client=SCORES, block=3, split_downlink=True, optimise_prior=True)
    sim = world.simulation(algorithm, participation=world.FULL)
    lambdas = [float(one.metrics["mrc/lambda"].min()) for one in rounds(sim, 3)]
    assert lambdas[0] == 1
    assert max(lambdas[1:]) < 1


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
    clip, affine = (first_round(one).after for one in (algorithm, replace(algorithm, form="affine", clamp=0.1)))
    for state, low in ((clip, 0.0), (affine, 0.1)):
        mean = (state.theta - low) / (1 - 2 * low) * NUM
        assert torch.allclose(mean, mean.round(), atol=1e-5)
        assert (float(state.theta.min()), float(state.theta.max())) == pytest.approx((low, 1 - low))


def test_a_relayed_step_is_the_mean_of_signs_of_one_size() -> None:
    one = first_round(BiCompFLCFL(Sgd(lr=0.1, batch_size=4), ServerSgd(), Compressor(MRCSign(block=4))))
    steps = (one.after.theta - one.before.theta) * NUM / 0.005
    assert torch.allclose(steps, steps.round(), atol=2e-3)
    assert int(steps.abs().max().round()) <= NUM


def _relayed_by_xor(codec: Any, module: Any) -> None:
    algorithm = BiCompFLCFL(SCORES, ServerSgd(), Compressor(codec), "xor")
    world.simulation(algorithm, module, participation=world.FULL).init()


@looped("module", [world.mlp, world.with_batch_norm])
@looped("codec", [MRCSign(scale="mean_abs"), Sign(), Dense(), TopK(0.2, "index")])
def test_messages_of_one_length_are_mixed(codec: Any, module: Any) -> None:
    _relayed_by_xor(codec, module)


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
