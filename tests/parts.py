# ruff: noqa: F401  (they are imported from here)
"""The parts that tests make runs of, under the names that they have there."""

from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.check.world import NUM_CLASSES, NUM_FEATURES
from fedcomp.client import LocalSolver
from fedcomp.client.adam import Adam
from fedcomp.client.gd import GD
from fedcomp.client.muon import Muon
from fedcomp.client.sgd import Sgd
from fedcomp.client.svrg import Svrg
from fedcomp.compressor import Codec, Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.estimators.estimator import WeightedSum
from fedcomp.compressor.estimators.spatial import Spatial
from fedcomp.compressor.estimators.temporal import Temporal
from fedcomp.compressor.feedback import ErrorFeedback
from fedcomp.compressor.mrc import MRC
from fedcomp.compressor.mrc.mrc_quantiser import MRCQuantiser
from fedcomp.compressor.mrc.mrc_sign import MRCSign
from fedcomp.compressor.quantisers.fp4 import FP4
from fedcomp.compressor.quantisers.qsgd import QSGD
from fedcomp.compressor.quantisers.sign import Sign
from fedcomp.compressor.quantisers.stochastic_sign import StochasticSign
from fedcomp.compressor.quantisers.terngrad import TernGrad
from fedcomp.compressor.rotations.drive import Drive
from fedcomp.compressor.rotations.eden import Eden
from fedcomp.compressor.sparsifiers.induced import Induced
from fedcomp.compressor.sparsifiers.permk import PermK
from fedcomp.compressor.sparsifiers.randk import RandK
from fedcomp.compressor.sparsifiers.random_mask import RandomMask
from fedcomp.compressor.sparsifiers.topk import TopK
from fedcomp.compressor.sparsifiers.wangni import Wangni
from fedcomp.core.parameter_layout import BIAS, NORMALISATION, WEIGHT, ParameterTensor
from fedcomp.participation.bernoulli import Bernoulli
from fedcomp.participation.full import Full
from fedcomp.participation.uniform import Uniform
from fedcomp.server.adam import Adam as ServerAdam
from fedcomp.server.sgd import Sgd as ServerSgd

DENSE = Compressor(Dense())
BATCH_NORM_TENSORS = (
    ParameterTensor(NUM_FEATURES * 4, WEIGHT),
    ParameterTensor(4, NORMALISATION),
    ParameterTensor(4, NORMALISATION),
    ParameterTensor(4 * NUM_CLASSES, WEIGHT),
    ParameterTensor(NUM_CLASSES, BIAS),
)
"""The parameter tensors of `world.with_batch_norm`."""


def spared(compressor: Compressor) -> Compressor:
    """The compressor as in runs of `world.with_batch_norm`: scale and shift are sent dense."""
    return compressor.for_tensors(BATCH_NORM_TENSORS)


def fedavg(client: LocalSolver | None = None, up: Compressor = DENSE, **options: object) -> FedAvg:
    """FedAvg of these clients (None: SGD of one epoch) with the model sent down as it is."""
    return FedAvg(client or Sgd(lr=0.1), ServerSgd(), up, DENSE, **options)  # type: ignore[arg-type]
