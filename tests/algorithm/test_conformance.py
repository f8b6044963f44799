"""Methods of updates and methods of masks against the suite; a new one adds one line here or in a file beside it."""

from dataclasses import replace

from fedcomp.algorithm.bicompfl.bicompfl_gr import BiCompFLGR
from fedcomp.algorithm.bicompfl.bicompfl_pr import BiCompFLPR
from fedcomp.algorithm.feddistill import FedDistill
from fedcomp.algorithm.fedmrn import FedMRN
from fedcomp.algorithm.fedpm import FedPM
from fedcomp.algorithm.fedscalar import FedScalar
from fedcomp.algorithm.fedsparsify import FedSparsify
from fedcomp.algorithm.fetchsgd import FetchSGD
from fedcomp.algorithm.streaming_diloco import StreamingDiLoCo
from tests.conformance import world
from tests.conformance.algorithm import AlgorithmCase, normed, suite
from tests.conformance.bits import dense, floats, largest, links, relayed, topk
from tests.lora_networks import lora_mlp
from tests.parts import (
    DENSE,
    Adam,
    Compressor,
    ErrorFeedback,
    FedAvg,
    Muon,
    ServerAdam,
    ServerSgd,
    Sgd,
    Sign,
    Svrg,
    TopK,
)

SGD, STEP = Sgd(lr=0.1, batch_size=4), ServerSgd()
TOPK = Compressor(TopK(0.2, "index"), ErrorFeedback())
SIGN = Compressor(Sign(), ErrorFeedback())
CAFE = Compressor.of(TopK(0.2, "index"), predictor="aggregate")
EF21 = Compressor.of(TopK(0.2, "index"), predictor="ef21")
EF21_P = Compressor.of(TopK(0.3, "index"), predictor="ef21_p")
SVRG = Svrg(lr=0.05, batch_size=4, snapshots=2, inner_steps=3, snapshot_batch_size=8)
ADAM, MOMENTUM = Adam(lr=0.02, steps=5, replacement=True), Sgd(lr=0.05, momentum=0.5, epochs=2, batch_size=3)
ADAMW, NESTEROV = Adam(lr=0.02, steps=3, batch_size=4, weight_decay=0.1, decoupled=True), ServerSgd(0.7, 0.5, True)
MUON = Muon(lr=0.02, steps=3, batch_size=4, skip_last=0)
STREAMING = StreamingDiLoCo(Sgd(lr=0.1, steps=3, batch_size=4), NESTEROV, DENSE, DENSE)
SHORT, SLOW = Sgd(lr=0.05, batch_size=4), Sgd(lr=0.01, batch_size=4)
"""Projected on one direction, a step is about sqrt(D) times as long."""
DERIVED = FedScalar(SLOW, "per_agent", num_projections=4, directions="orthonormal", seed_cost="derived")
SUBTRACT = FetchSGD(SHORT, 3, 30, share=0.3, clear="subtract", mask_momentum=False, rho=0.0, weights="uniform")
SKETCH = links(lambda dim, stats, layers: 32 * (3 * max(2, round(0.5 * dim / 3)) + stats), largest, to_all=True)
SIGN_BOTH_WAYS = links(lambda dim, stats, layers: dim + 32 * len(layers) + 32 * stats, to_all=True)
SHARED_SCALAR = links(lambda dim, stats, layers: 32 + 32 * stats, lambda dim, stats, layers: 32 * (dim + stats) + 64)
SCALAR_EACH = links(lambda dim, stats, layers: 64 + 3 * 32, lambda dim, stats, layers: 32 * dim)

UPDATES = [
    AlgorithmCase("fedavg", FedAvg(SGD, STEP, DENSE, DENSE), dense),
    normed("fedavg-batch_norm", FedAvg(SGD, STEP, DENSE, DENSE), dense),
    normed("feddistill", FedDistill(SGD)),
    AlgorithmCase("fedavg-lora", FedAvg(SGD, STEP, TOPK, DENSE), topk, lora_mlp),
    AlgorithmCase("fedavg-topk", FedAvg(SGD, STEP, TOPK, DENSE), topk),
    AlgorithmCase("fedavg-rice", FedAvg(SGD, STEP, Compressor(TopK(0.3, "rice")), DENSE)),
    normed("fedavg-sign_both", FedAvg(SGD, STEP, SIGN, SIGN), SIGN_BOTH_WAYS),
    normed("fedavg-cafe", FedAvg(SGD, STEP, CAFE, SIGN, sends="mean_update")),
    AlgorithmCase("fedavg-cafe-model", FedAvg(SGD, STEP, CAFE, DENSE)),
    AlgorithmCase("fedavg-ef21", FedAvg(SGD, STEP, EF21, DENSE, "uniform"), topk),
    normed("fedavg-ef21_p", FedAvg(SGD, STEP, DENSE, EF21_P)),
    AlgorithmCase("fedavg-full", FedAvg(SGD, STEP, SIGN, DENSE), None, participation=world.FULL),
    AlgorithmCase("fedavg-adam", FedAvg(ADAM, ServerAdam(lr=0.05), DENSE, DENSE, "uniform"), dense),
    AlgorithmCase("fedavg-momentum", FedAvg(MOMENTUM, ServerSgd(0.7, 0.5), TOPK, DENSE), topk),
    normed("fedavg-diloco", FedAvg(ADAMW, NESTEROV, DENSE, DENSE, persist_optimizer=True), dense),
    normed("fedavg-muon", FedAvg(MUON, STEP, DENSE, DENSE, persist_optimizer=True), dense),
    AlgorithmCase("streaming_diloco", STREAMING),
    normed("streaming_diloco-sign", replace(STREAMING, uplink=SIGN, downlink=SIGN, tau=4, alpha=0.5)),
    normed("fedavg-svrg", FedAvg(SVRG, STEP, DENSE, DENSE, "uniform"), dense),
    AlgorithmCase("fedavg-svrg-sign", FedAvg(SVRG, STEP, SIGN, SIGN), SIGN_BOTH_WAYS),
    AlgorithmCase("fedscalar-svrg", FedScalar(replace(SVRG, lr=0.01)), SHARED_SCALAR),
    normed("fedscalar-shared", FedScalar(SLOW, num_projections=1), SHARED_SCALAR),
    AlgorithmCase("fedscalar-per_agent", FedScalar(SLOW, "per_agent", "gaussian", 3), SCALAR_EACH),
    AlgorithmCase("fedscalar-replay", FedScalar(SLOW, distribution="sphere", sends="scalar")),
    normed("fedscalar-replay-each", replace(DERIVED, sends="scalar"), participation=world.FULL),
    AlgorithmCase("fetchsgd", FetchSGD(SHORT, 3, None, 0.5, None, 0.2, positions="index", rho=0.5), SKETCH),
    normed("fetchsgd-subtract", SUBTRACT),
]

test_updates = suite(UPDATES)


SCORES = Adam(lr=0.1, batch_size=4)
MASKS = Adam(lr=0.2, batch_size=4, epochs=3)
RELAYED = relayed(lambda dim: 8 * -(-dim // 16))
MASK_UP = links(lambda dim, stats, layers: dim + 64 + 32 * stats, floats)
MASK_AND_NORMALISATION_UP = links(lambda dim, stats, layers: dim - 8 + 64 + 32 * (8 + stats), floats)
ONE_BIT_UP = links(lambda dim, stats, layers: dim, floats)
NORMALISATION_FROZEN = links(lambda dim, stats, layers: dim - 8 + 32 * stats, lambda dim, *rest: floats(dim - 8, *rest))
SIGNED = FedMRN(SGD, STEP, DENSE, "signed", "gaussian", 0.03, ramp=0.5, power=2.0)
BERNOULLI = FedMRN(SGD, STEP, SIGN, "signed", "bernoulli", 0.03, pm=False, seed_cost="derived", mask_batchnorm=True)
WEIGHTED = FedPM(SCORES, frozen="normal", gain=1.5, theta0=0.5, ste="p_weighted", coding="prior", test="expected")
COUNTED = FedPM(Adam(lr=0.2, batch_size=2, epochs=3), coding="arithmetic", sends="counts", prior=1.5, reset_every=2)
MAJORITY = FedSparsify(Sgd(lr=0.1, batch_size=4, momentum=0.3), 0.5, "progressive", merge="majority")
GR, PR = BiCompFLGR(client=MASKS, block=4, longest=32), BiCompFLPR(client=MASKS, block=4, split_downlink=True)
RECONSTRUCT = BiCompFLGR(client=MASKS, reconstruct=True, block=16, candidates="per_client", n_ul=2, form="affine")
AVERAGE = replace(GR, allocation="adaptive_avg", smallest=2, n_is=20, phi=1.5, capacity="bits")
MIXED = BiCompFLPR(client=MASKS, block=8, optimise_prior=True, n_dl=5, bits=16, test="expected")
MIX = replace(PR, n_ul=2, n_dl=9, rest="mix", mix_half_after=2, mix_until=4, test="expected")


def _coded_both_ways(dim, stats, layers, cohort):
    each = 8 * -(-dim // 16)
    return {"uplink": 2 * cohort * each, "downlink": 2 * cohort * cohort * each, "broadcast": 2 * cohort * each}


def _private(dim, stats, layers, cohort):
    each, down = 6 * -(-dim // 16), world.NUM_CLIENTS
    return {"uplink": cohort * each, "downlink": down * cohort * each, "broadcast": down * cohort * each}


OF_MASKS = [
    AlgorithmCase("fedmrn", FedMRN(SGD, STEP, DENSE, alpha=0.1), MASK_UP),
    normed("fedmrn-signed", SIGNED, MASK_AND_NORMALISATION_UP),
    normed("fedmrn-all", BERNOULLI),
    AlgorithmCase("fedmrn-deterministic", FedMRN(SGD, STEP, DENSE, alpha=0.1, sm=False), MASK_UP),
    AlgorithmCase("fedpm", FedPM(SCORES), ONE_BIT_UP),
    normed("fedpm-batch_norm", FedPM(SCORES, gain="e_fan_in"), NORMALISATION_FROZEN),
    normed("fedpm-trained", replace(WEIGHTED, batchnorm_training="trained")),
    AlgorithmCase("fedpm-counts", COUNTED),
    normed("fedpm-persistent", FedPM(SCORES, persist_optimizer=True), NORMALISATION_FROZEN),
    AlgorithmCase("fedsparsify", FedSparsify(Sgd(lr=0.1, batch_size=4, epochs=3), 0.6)),
    normed("fedsparsify-progressive", MAJORITY),
    AlgorithmCase("bicompfl_gr", BiCompFLGR(client=MASKS, block=16), RELAYED),
    AlgorithmCase("bicompfl_gr-reconstruct", RECONSTRUCT, _coded_both_ways),
    normed("bicompfl_gr-adaptive", replace(GR, allocation="adaptive", n_is=64, relay="xor")),
    AlgorithmCase("bicompfl_gr-average", AVERAGE),
    AlgorithmCase("bicompfl_pr", BiCompFLPR(client=MASKS, block=16, n_is=64), _private),
    normed("bicompfl_pr-mixed", MIXED),
    AlgorithmCase("bicompfl_pr-split", replace(PR, rest="qhat", optimise_prior=True)),
    AlgorithmCase("bicompfl_pr-split-mix", MIX),
]

test_masks = suite(OF_MASKS, UPDATES)

CASES = UPDATES + OF_MASKS
