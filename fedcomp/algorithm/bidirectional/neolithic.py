"""NEOLITHIC: DoubleSqueeze whose every vector is sent in R compressed messages, each of what the ones before left out.

X. Huang, Y. Chen, W. Yin, K. Yuan, "Lower bounds and nearly optimal algorithms in distributed learning with
communication compression", NeurIPS 2022; FCC is its fast compressed communication. With u_i the local change
(minus the pseudo-gradient):

    client  s_i = FCC_R(u_i + e_i),    e_i <- u_i + e_i - s_i
    server  S = FCC_R(mean s_i + E),   E <- mean s_i + E - S
    all     x <- x + eta S

Differs from the paper: it accumulates R gradients a step, so that R messages cost as much as R steps of other methods;
here, as in the experiments of BiCompFL that take it as baseline with R = 2, one change is sent, at R times the bits.
"""

from dataclasses import replace
from typing import Annotated

from fedcomp.algorithm.bidirectional.doublesqueeze import DoubleSqueeze
from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.client import LocalSolver
from fedcomp.compressor import Compressor
from fedcomp.compressor.fast_compressed_communication import FastCompressedCommunication
from fedcomp.core.ranges import Whole, checked
from fedcomp.server import ServerOptimizer


@checked("algorithm.")
def Neolithic(
    client: LocalSolver,
    server: ServerOptimizer,
    uplink: Compressor,
    downlink: Compressor,
    weights: str = "uniform",
    sends: str = "mean_update",
    passes: Annotated[int, Whole()] = 2,
) -> FedAvg:
    """DoubleSqueeze with `passes` (R) messages a vector in either direction; the other arguments are DoubleSqueeze's.

    A near-lossless compressor, such as dense, leaves nothing to send again and is used once.
    """
    once = DoubleSqueeze(client, server, uplink, downlink, weights, sends)
    return replace(once, uplink=_repeated(once.uplink, passes), downlink=_repeated(once.downlink, passes))


def _repeated(compressor: Compressor, passes: int) -> Compressor:
    if compressor.codec.near_lossless:
        return compressor
    return replace(compressor, codec=FastCompressedCommunication(compressor.codec, passes))
