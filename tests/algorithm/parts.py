# ruff: noqa: F401  (they are imported from here)
"""The parts that tests of algorithms are made of, under the names that they have there."""

from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.client.adam import Adam
from fedcomp.client.gd import GD
from fedcomp.client.muon import Muon
from fedcomp.client.sgd import Sgd
from fedcomp.client.svrg import Svrg
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.estimators.spatial import Spatial
from fedcomp.compressor.feedback import ErrorFeedback
from fedcomp.compressor.mrc.mrc_sign import MRCSign
from fedcomp.compressor.quantisers.qsgd import QSGD
from fedcomp.compressor.quantisers.sign import Sign
from fedcomp.compressor.rotations.eden import Eden
from fedcomp.compressor.sparsifiers.permk import PermK
from fedcomp.compressor.sparsifiers.randk import RandK
from fedcomp.compressor.sparsifiers.topk import TopK
from fedcomp.server.adam import Adam as ServerAdam
from fedcomp.server.sgd import Sgd as ServerSgd

DENSE = Compressor(Dense())
