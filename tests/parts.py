# ruff: noqa: F401  (they are imported from here)
"""The parts that tests make runs of, under the names that they have there."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.check import world
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
from fedcomp.core.cohort import Cohort
from fedcomp.model.contract import Model
from fedcomp.participation.bernoulli import Bernoulli
from fedcomp.participation.full import Full
from fedcomp.participation.uniform import Uniform
from fedcomp.random.keys import Key
from fedcomp.server.adam import Adam as ServerAdam
from fedcomp.server.sgd import Sgd as ServerSgd

DENSE = Compressor(Dense())
BATCH_NORM_TENSORS = Model(world.with_batch_norm()).tensors


@dataclass(frozen=True)
class Cohorts(Full):
    """The clients of each round, and from then on those of the last; weights as given, or by importance, sum 1."""

    clients: tuple[tuple[int, ...], ...] = ()
    weight: tuple[float, ...] | None = None

    def sample(self, key: Key, importance: Tensor, round_index: int = 0) -> Cohort:
        chosen = self.clients[min(round_index, len(self.clients) - 1)]
        weight = importance[list(chosen)] if self.weight is None else torch.tensor(self.weight)
        return Cohort.of(chosen, weight / weight.sum())


def spared(compressor: Compressor) -> Compressor:
    """The compressor as in runs of `world.with_batch_norm`: scale and shift are sent dense."""
    return compressor.for_tensors(BATCH_NORM_TENSORS)


def fedavg(client: LocalSolver | None = None, up: Compressor = DENSE, **options: object) -> FedAvg:
    """FedAvg of these clients (None: SGD of one epoch) with the model sent down as it is."""
    return FedAvg(client or Sgd(lr=0.1), ServerSgd(), up, DENSE, **options)  # type: ignore[arg-type]
