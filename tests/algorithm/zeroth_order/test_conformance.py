"""Zeroth-order methods against the suite; a new one adds a line to CASES."""

from __future__ import annotations

from fedcomp.algorithm.zeroth_order.decomfl import DeComFL
from fedcomp.algorithm.zeroth_order.fedkseed import FedKSeed
from tests.conformance import world
from tests.conformance.algorithm import AlgorithmCase, suite


def _to_everybody(dim, stats, layers, cohort):
    """Two steps of 15 directions; the seeds and the mean scalars go to all clients."""
    each = 2 * 64 + 2 * 15 * 32
    return {"uplink": cohort * 2 * 15 * 32, "downlink": world.NUM_CLIENTS * each, "broadcast": each}


def _model_down(dim, stats, layers, cohort):
    """20 scalars up; model, velocity and seed down, statistics both ways."""
    each = 64 * dim + 64 + 32 * stats
    return {"uplink": cohort * (20 * 32 + 32 * stats), "downlink": cohort * each, "broadcast": each}


def _pairs_up(dim, stats, layers, cohort):
    """12 indices of 6 bits and 12 scalars; 64 coefficients down."""
    return {"uplink": cohort * 12 * 38, "downlink": cohort * 64 * 32, "broadcast": 64 * 32}


def _pro(dim, stats, layers, cohort):
    """Derived choices; coefficients, probabilities and statistics."""
    each = 2 * 40 * 32 + 32 * stats
    return {"uplink": cohort * (10 * 32 + 32 * stats), "downlink": cohort * each, "broadcast": each}


DELTA = FedKSeed(200, 8, lr=0.02, batch_size=4, distribution="rademacher", sends="delta", clip=5.0, weights="uniform")

CASES = [
    AlgorithmCase("decomfl", DeComFL(lr=0.02, momentum=0.5, batch_size=4, verify_replay=True), None),
    AlgorithmCase(
        "decomfl-all",
        DeComFL(2, 15, 1e-2, "forward", "rademacher", lr=0.02, batch_size=4, sends="broadcast_all"),
        _to_everybody,
    ),
    AlgorithmCase(
        "decomfl-model",
        DeComFL(1, 20, 1e-2, "central", "sphere", 0.02, 0.5, 1e-4, batch_size=4, sends="model", running_stats="gather"),
        _model_down,
        world.with_batch_norm,
    ),
    AlgorithmCase(
        "decomfl-stages",
        DeComFL(
            2,
            10,
            1e-2,
            "forward",
            lr=0.03,
            schedule="cosine",
            lr_final=0.5,
            stages={2: [0.8, 2]},
            batch_size=4,
            seed_cost="derived",
            sends="shortest",
            history=2,
            running_stats="gather",
            weights="samples",
            diagnose=True,
            verify_replay=True,
        ),
        None,
        world.with_batch_norm,
    ),
    AlgorithmCase("fedkseed", FedKSeed(64, 12, lr=0.02, batch_size=4), _pairs_up),
    AlgorithmCase(
        "fedkseed-pro",
        FedKSeed(
            40,
            10,
            1e-2,
            "forward",
            "sphere",
            lr=0.01,
            batch_size=4,
            sampling="amplitude",
            unbiased_sampling=True,
            choice="derived",
            running_stats="gather",
        ),
        _pro,
        world.with_batch_norm,
    ),
    AlgorithmCase("fedkseed-delta", DELTA, None),
    AlgorithmCase("fedkseed-delta-full", DELTA, None, participation=world.FULL),
    AlgorithmCase(
        "fedkseed-sums",
        FedKSeed(6, 30, lr=0.02, batch_size=4),
        lambda dim, stats, layers, cohort: {
            "uplink": cohort * 6 * 32,
            "downlink": cohort * 6 * 32,
            "broadcast": 6 * 32,
        },
    ),
]

test_algorithm = suite(CASES)
