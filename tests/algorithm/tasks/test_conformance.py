"""Power iteration, k-means and mean estimation against the suite."""

from functools import partial

from fedcomp.algorithm.tasks.kmeans import KMeans
from fedcomp.algorithm.tasks.mean_estimation import MeanEstimation
from fedcomp.algorithm.tasks.power_iteration import PowerIteration
from fedcomp.model.tasks.centres import Centres
from fedcomp.model.tasks.mean_vector import MeanVector
from fedcomp.model.tasks.principal_direction import PrincipalDirection
from tests.algorithm.test_conformance import UPDATES
from tests.conformance import world
from tests.conformance.algorithm import AlgorithmCase, suite
from tests.conformance.bits import dense, largest, links
from tests.parts import DENSE, Compressor, ErrorFeedback, Sign, TopK

TOPK = Compressor(TopK(0.2, "index"), ErrorFeedback())
SIGN = Compressor(Sign(), ErrorFeedback())
THREE, CENTRED = partial(Centres, num_clusters=3), partial(PrincipalDirection, centre="global")


def _up_only(dim, stats, layers, cohort):
    return {"uplink": cohort * 32 * dim, "downlink": 0, "broadcast": 0}


TOPK_UP_SIGN_DOWN = links(largest, lambda dim, stats, layers: dim + 32 * len(layers), to_all=True)

CASES = [
    AlgorithmCase("power", PowerIteration(DENSE, DENSE, 4), dense, PrincipalDirection, metric="test/distance"),
    AlgorithmCase("power-centred", PowerIteration(SIGN, DENSE, 4), None, CENTRED, metric="test/distance"),
    AlgorithmCase(
        "power-lossy", PowerIteration(TOPK, SIGN, 4), TOPK_UP_SIGN_DOWN, PrincipalDirection, metric="test/distance"
    ),
    AlgorithmCase("kmeans", KMeans(DENSE, DENSE, 4), None, THREE, metric="test/objective"),
    AlgorithmCase("kmeans-lossy", KMeans(Compressor(TopK(0.6)), SIGN, 4), None, THREE, metric="test/objective"),
    AlgorithmCase("mean", MeanEstimation(DENSE), _up_only, MeanVector, world.FULL, metric="test/error"),
    AlgorithmCase("mean-topk", MeanEstimation(TOPK, "keep"), None, MeanVector, metric="test/error"),
]

test_algorithm = suite(CASES, UPDATES)
