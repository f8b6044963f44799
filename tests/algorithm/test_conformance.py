"""Every algorithm against the suite. A new method adds one line to CASES."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from fedcomp.algorithm.bicompfl_cfl import BiCompFLCFL
from fedcomp.algorithm.bicompfl_gr import BiCompFLGR
from fedcomp.algorithm.bicompfl_pr import BiCompFLPR
from fedcomp.algorithm.cser import CSER
from fedcomp.algorithm.doublesqueeze import DoubleSqueeze
from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.algorithm.fedmrn import FedMRN
from fedcomp.algorithm.fedpm import FedPM
from fedcomp.algorithm.fedscalar import FedScalar
from fedcomp.algorithm.fedsparsify import FedSparsify
from fedcomp.algorithm.kmeans import KMeans
from fedcomp.algorithm.liec import LIEC
from fedcomp.algorithm.m3 import M3
from fedcomp.algorithm.mean_estimation import MeanEstimation
from fedcomp.algorithm.memsgd import MemSGD
from fedcomp.algorithm.neolithic import Neolithic
from fedcomp.algorithm.power_iteration import PowerIteration
from fedcomp.client.adam import Adam
from fedcomp.client.sgd import Sgd
from fedcomp.client.svrg import Svrg
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.feedback import ErrorFeedback
from fedcomp.compressor.mrc_quantiser import MRCQuantiser
from fedcomp.compressor.mrc_sign import MRCSign
from fedcomp.compressor.permk import PermK
from fedcomp.compressor.qsgd import QSGD
from fedcomp.compressor.randk import RandK
from fedcomp.compressor.sign import Sign
from fedcomp.compressor.topk import TopK
from fedcomp.model.centres import Centres
from fedcomp.model.mean_vector import MeanVector
from fedcomp.model.principal_direction import PrincipalDirection
from fedcomp.server.adam import Adam as ServerAdam
from fedcomp.server.sgd import Sgd as ServerSgd
from tests.conformance import world
from tests.conformance.algorithm import CHECKS, AlgorithmCase, conforms

SGD, STEP = Sgd(lr=0.1, batch_size=4), ServerSgd()
DENSE, TOPK = Compressor(Dense()), Compressor(TopK(0.2, "index"), ErrorFeedback())
SIGN = Compressor(Sign(), ErrorFeedback())
PLAIN_SIGN = Compressor(Sign(granularity="model"))
SIGN, PERMK = Compressor(Sign(), ErrorFeedback()), Compressor(PermK())
SVRG = Svrg(lr=0.05, batch_size=4, snapshots=2, inner_steps=3, snapshot_batch_size=8)
SLOW = Sgd(lr=0.01, batch_size=4)
"""Projected on one direction, a step is about sqrt(D) times as long."""
PERMK = Compressor(PermK())
SCORES = Adam(lr=0.1, batch_size=4)
MASKS = Adam(lr=0.2, batch_size=4, epochs=3)


def _dense(dim, stats, layers, cohort):
    each = 32 * (dim + stats)
    return {"uplink": cohort * each, "downlink": cohort * each, "broadcast": each}


def _topk(dim, stats, layers, cohort):
    kept = max(1, round(0.2 * dim))
    uplink = kept * (32 + (dim - 1).bit_length()) + 32 * stats
    return _dense(dim, stats, layers, cohort) | {"uplink": cohort * uplink}


def _sign_both_ways(dim, stats, layers, cohort):
    each = dim + 32 * len(layers) + 32 * stats
    return {"uplink": cohort * each, "downlink": world.NUM_CLIENTS * each, "broadcast": each}


def _shared_scalar(dim, stats, layers, cohort):
    each = 32 * dim + 64 + 32 * stats
    return {"uplink": cohort * (32 + 32 * stats), "downlink": cohort * each, "broadcast": each}


def _scalar_each(dim, stats, layers, cohort):
    return {"uplink": cohort * (64 + 3 * 32), "downlink": cohort * 32 * dim, "broadcast": 32 * dim}


def _one_sign_both_ways(dim, stats, layers, cohort):
    each = dim + 32 + 32 * stats
    return {"uplink": cohort * each, "downlink": world.NUM_CLIENTS * each, "broadcast": each}


def _sign_up_dense_down(dim, stats, layers, cohort):
    return _dense(dim, stats, layers, cohort) | {"uplink": cohort * (dim + 32 + 32 * stats)}


def _two_signs_both_ways(dim, stats, layers, cohort):
    each = 2 * (dim + 32)
    return {"uplink": cohort * each, "downlink": world.NUM_CLIENTS * each, "broadcast": each}


def _up_only(dim, stats, layers, cohort):
    return {"uplink": cohort * 32 * dim, "downlink": 0, "broadcast": 0}


def _topk_up_sign_down(dim, stats, layers, cohort):
    down = dim + 32 * len(layers)
    uplink = cohort * _topk(dim, 0, layers, 1)["uplink"]
    return {"uplink": uplink, "downlink": world.NUM_CLIENTS * down, "broadcast": down}


def _mask_up(dim, stats, layers, cohort):
    return _dense(dim, stats, layers, cohort) | {"uplink": cohort * (dim + 64 + 32 * stats)}


def _mask_and_batch_norm_up(dim, stats, layers, cohort):
    return _dense(dim, stats, layers, cohort) | {"uplink": cohort * (dim - 8 + 64 + 32 * 8 + 32 * stats)}


def _relayed(dim, stats, layers, cohort):
    each = 8 * -(-dim // 16)
    return {"uplink": cohort * each, "downlink": cohort * (cohort - 1) * each, "broadcast": cohort * each}


def _coded_both_ways(dim, stats, layers, cohort):
    each = 8 * -(-dim // 16)
    return {"uplink": 2 * cohort * each, "downlink": 2 * cohort * cohort * each, "broadcast": 2 * cohort * each}


def _private(dim, stats, layers, cohort):
    each, down = 6 * -(-dim // 16), world.NUM_CLIENTS
    return {"uplink": cohort * each, "downlink": down * cohort * each, "broadcast": down * cohort * each}


def _relayed_signs(dim, stats, layers, cohort):
    each = 8 * -(-dim // 8)
    return {"uplink": cohort * each, "downlink": cohort * (cohort - 1) * each, "broadcast": cohort * each}


def _one_bit_up(dim, stats, layers, cohort):
    return _dense(dim, stats, layers, cohort) | {"uplink": cohort * dim}


def _one_bit_up_batch_norm_frozen(dim, stats, layers, cohort):
    each = 32 * (dim - 8 + stats)
    return {"uplink": cohort * (dim - 8 + 32 * stats), "downlink": cohort * each, "broadcast": each}


THREE, CENTRED = partial(Centres, num_clusters=3), partial(PrincipalDirection, centre="global")


def _shared_scalar(dim, stats, layers, cohort):
    each = 32 * dim + 64 + 32 * stats
    return {"uplink": cohort * (32 + 32 * stats), "downlink": cohort * each, "broadcast": each}


def _scalar_each(dim, stats, layers, cohort):
    return {"uplink": cohort * (64 + 3 * 32), "downlink": cohort * 32 * dim, "broadcast": 32 * dim}


CASES = [
    AlgorithmCase("fedavg", FedAvg(SGD, STEP, DENSE, DENSE), _dense),
    AlgorithmCase("fedavg-batch_norm", FedAvg(SGD, STEP, DENSE, DENSE), _dense, world.with_batch_norm),
    AlgorithmCase("fedavg-topk", FedAvg(SGD, STEP, TOPK, DENSE), _topk),
    AlgorithmCase("fedavg-rice", FedAvg(SGD, STEP, Compressor(TopK(0.3, "rice")), DENSE), None),
    AlgorithmCase("fedavg-sign_both", FedAvg(SGD, STEP, SIGN, SIGN), _sign_both_ways, world.with_batch_norm),
    AlgorithmCase("fedavg-full", FedAvg(SGD, STEP, SIGN, DENSE), None, participation=world.FULL),
    AlgorithmCase(
        "fedavg-adam",
        FedAvg(Adam(lr=0.02, steps=5, replacement=True), ServerAdam(lr=0.05), DENSE, DENSE, "uniform"),
        _dense,
    ),
    AlgorithmCase(
        "fedavg-momentum",
        FedAvg(Sgd(lr=0.05, momentum=0.5, epochs=2, batch_size=3), ServerSgd(0.7, 0.5), TOPK, DENSE),
        _topk,
    ),
    AlgorithmCase("fedavg-svrg", FedAvg(SVRG, STEP, DENSE, DENSE, "uniform"), _dense, world.with_batch_norm),
    AlgorithmCase("fedavg-svrg-sign", FedAvg(SVRG, STEP, SIGN, SIGN), _sign_both_ways),
    AlgorithmCase("fedscalar-svrg", FedScalar(replace(SVRG, lr=0.01)), _shared_scalar),
    AlgorithmCase("fedscalar-shared", FedScalar(SLOW, num_projections=1), _shared_scalar, world.with_batch_norm),
    AlgorithmCase("fedscalar-per_agent", FedScalar(SLOW, "per_agent", "gaussian", 3), _scalar_each),
    AlgorithmCase("fedscalar-replay", FedScalar(SLOW, distribution="sphere", downlink="scalar"), None),
    AlgorithmCase(
        "fedscalar-replay-each",
        FedScalar(SLOW, "per_agent", num_projections=4, directions="orthonormal", seed="derived", downlink="scalar"),
        None,
        world.with_batch_norm,
        participation=world.FULL,
    ),
    AlgorithmCase("fedmrn", FedMRN(SGD, STEP, DENSE, alpha=0.1), _mask_up),
    AlgorithmCase(
        "fedmrn-signed",
        FedMRN(SGD, STEP, DENSE, "signed", "gaussian", 0.03, ramp=0.5, power=2.0),
        _mask_and_batch_norm_up,
        world.with_batch_norm,
    ),
    AlgorithmCase(
        "fedmrn-all",
        FedMRN(SGD, STEP, SIGN, "signed", "bernoulli", 0.03, pm=False, seed="derived", mask_batchnorm=True),
        None,
        world.with_batch_norm,
    ),
    AlgorithmCase("fedmrn-deterministic", FedMRN(SGD, STEP, DENSE, alpha=0.1, sm=False), _mask_up),
    AlgorithmCase("fedpm", FedPM(SCORES), _one_bit_up),
    AlgorithmCase(
        "fedpm-batch_norm", FedPM(SCORES, gain="e_fan_in"), _one_bit_up_batch_norm_frozen, world.with_batch_norm
    ),
    AlgorithmCase(
        "fedpm-trained",
        FedPM(SCORES, "normal", 1.5, 0.5, "p_weighted", normalisation="trained", coding="prior", test="expected"),
        None,
        world.masked_batch_norm,
    ),
    AlgorithmCase(
        "fedpm-counts",
        FedPM(Adam(lr=0.2, batch_size=2, epochs=3), coding="arithmetic", downlink="counts", prior=1.5, reset_every=2),
        None,
    ),
    AlgorithmCase("fedsparsify", FedSparsify(Sgd(lr=0.1, batch_size=4, epochs=3), 0.6), None),
    AlgorithmCase(
        "fedsparsify-progressive",
        FedSparsify(Sgd(lr=0.1, batch_size=4, momentum=0.3), 0.5, "progressive", merge="majority"),
        None,
        world.with_batch_norm,
    ),
    AlgorithmCase("bicompfl_gr", BiCompFLGR(client=MASKS, block=16), _relayed, participation=world.FULL),
    AlgorithmCase(
        "bicompfl_gr-reconstruct",
        BiCompFLGR(client=MASKS, reconstruct=True, block=16, candidates="per_client", n_ul=2, form="affine"),
        _coded_both_ways,
        participation=world.FULL,
    ),
    AlgorithmCase(
        "bicompfl_gr-adaptive",
        BiCompFLGR(client=MASKS, allocation="adaptive", block=4, longest=32, n_is=64, relay="xor"),
        None,
        world.masked_batch_norm,
        participation=world.FULL,
    ),
    AlgorithmCase(
        "bicompfl_gr-average",
        BiCompFLGR(client=MASKS, allocation="adaptive_avg", block=4, smallest=2, longest=32, n_is=20, phi=1.5),
        None,
        participation=world.FULL,
    ),
    AlgorithmCase("bicompfl_pr", BiCompFLPR(client=MASKS, block=16, n_is=64), _private),
    AlgorithmCase(
        "bicompfl_pr-mixed",
        BiCompFLPR(client=MASKS, block=8, optimise_prior=True, n_dl=5, bits=16, test="expected"),
        None,
        world.masked_batch_norm,
    ),
    AlgorithmCase("bicompfl_pr-split", BiCompFLPR(client=MASKS, block=4, split_downlink=True, rest="qhat"), None),
    AlgorithmCase(
        "bicompfl_cfl",
        BiCompFLCFL(SGD, STEP, Compressor(MRCSign(block=8, value=0.05))),
        _relayed_signs,
        participation=world.FULL,
    ),
    AlgorithmCase(
        "bicompfl_cfl-memory",
        BiCompFLCFL(SGD, STEP, Compressor(MRCSign(block=8, scale="mean_abs"), ErrorFeedback()), "xor"),
        None,
        world.with_batch_norm,
        participation=world.FULL,
    ),
    AlgorithmCase(
        "bicompfl_cfl-quantiser",
        BiCompFLCFL(SGD, STEP, Compressor(MRCQuantiser(block=8, prior="mean"))),
        None,
        participation=world.FULL,
    ),
    AlgorithmCase(
        "doublesqueeze", DoubleSqueeze(SGD, STEP, PLAIN_SIGN, PLAIN_SIGN), _one_sign_both_ways, world.with_batch_norm
    ),
    AlgorithmCase("doublesqueeze-topk", DoubleSqueeze(SGD, ServerSgd(0.5, 0.3), TOPK, TOPK), None),
    AlgorithmCase("memsgd", MemSGD(SGD, STEP, PLAIN_SIGN, DENSE), _sign_up_dense_down, world.with_batch_norm),
    AlgorithmCase("memsgd-full", MemSGD(SGD, STEP, TOPK, DENSE, sends="mean"), _topk, participation=world.FULL),
    AlgorithmCase("neolithic", Neolithic(SGD, STEP, PLAIN_SIGN, PLAIN_SIGN), _two_signs_both_ways),
    AlgorithmCase("neolithic-topk", Neolithic(SGD, STEP, TOPK, SIGN, repeats=3), None, world.with_batch_norm),
    AlgorithmCase("cser", CSER(SGD, STEP, PLAIN_SIGN, DENSE), _sign_up_dense_down, world.with_batch_norm, world.FULL),
    AlgorithmCase("cser-resets", CSER(SGD, STEP, PLAIN_SIGN, SIGN, 2), None, participation=world.FULL),
    AlgorithmCase("liec", LIEC(SGD, STEP, PLAIN_SIGN, PLAIN_SIGN), _one_sign_both_ways, participation=world.FULL),
    AlgorithmCase(
        "liec-average", LIEC(SGD, STEP, PLAIN_SIGN, SIGN, 3), None, world.with_batch_norm, participation=world.FULL
    ),
    AlgorithmCase("liec-fused", LIEC(SGD, STEP, PLAIN_SIGN, TOPK, 2, True), None, participation=world.FULL),
    AlgorithmCase("power", PowerIteration(DENSE, DENSE, 4), _dense, PrincipalDirection, metric="test/distance"),
    AlgorithmCase("power-centred", PowerIteration(SIGN, DENSE, 4), None, CENTRED, metric="test/distance"),
    AlgorithmCase(
        "power-lossy", PowerIteration(TOPK, SIGN, 4), _topk_up_sign_down, PrincipalDirection, metric="test/distance"
    ),
    AlgorithmCase("kmeans", KMeans(DENSE, DENSE, 4), None, THREE, metric="test/objective"),
    AlgorithmCase("kmeans-lossy", KMeans(Compressor(TopK(0.6)), SIGN, 4), None, THREE, metric="test/objective"),
    AlgorithmCase("m3", M3(SGD, STEP, Compressor(TopK()), PERMK, p_down=0.3), None, world.with_batch_norm, world.FULL),
    AlgorithmCase(
        "m3-whole", M3(SGD, STEP, Compressor(TopK()), PERMK, p_down=1, p_up=1), _dense, participation=world.FULL
    ),
    AlgorithmCase(
        "m3-parts",
        M3(SGD, STEP, Compressor(RandK()), PERMK, p_down=0, p_up=0),
        None,
        participation=world.FULL,
    ),
    AlgorithmCase(
        "m3-ef21",
        M3(SGD, STEP, Compressor(Sign()), Compressor(QSGD()), differences="ef21", uplink_entries="compressor"),
        None,
        participation=world.FULL,
    ),
    AlgorithmCase("mean", MeanEstimation(DENSE), _up_only, MeanVector, world.FULL, metric="test/error"),
    AlgorithmCase("mean-topk", MeanEstimation(TOPK, "keep"), None, MeanVector, metric="test/error"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_algorithm(case: AlgorithmCase, check, tmp_path: Path) -> None:
    conforms(case, check, tmp_path)
