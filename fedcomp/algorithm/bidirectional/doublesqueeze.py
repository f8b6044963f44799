"""DoubleSqueeze: compressed messages both ways, with an error memory at each client and one at the server.

H. Tang, C. Yu, X. Lian, T. Zhang, J. Liu, "DoubleSqueeze: parallel stochastic gradient descent with double-pass
error-compensated compression", ICML 2019, algorithm 1. With u_i the local change (minus the pseudo-gradient g_i):

    client  m_i = C(u_i + e_i),  e_i <- u_i + e_i - m_i           server  M = C(mean m_i + E),  E <- mean m_i + E - M
    all     x <- x + eta M

So it is FedAvg whose two compressors remember their errors, in the units of u, and whose downlink carries the mean
update to all clients, who take the server's step with it. Differs from the paper: epochs of local training instead of
one gradient; clients may be left out of a round, and their memories wait. With a momentum at the server, every client
keeps that momentum too.
"""

from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.client import LocalSolver
from fedcomp.compressor import Compressor
from fedcomp.server import ServerOptimizer


def DoubleSqueeze(
    client: LocalSolver,
    server: ServerOptimizer,
    uplink: Compressor,
    downlink: Compressor,
    weights: str = "uniform",
    sends: str = "mean_update",
) -> FedAvg:
    """FedAvg with error memory at both ends; the arguments are FedAvg's, `weights` "uniform" as in the paper.

    Raises ValueError: a compressor that cannot have an error memory.
    """
    up, down = uplink.with_error_feedback("compressor"), downlink.with_error_feedback("downlink")
    return FedAvg(client, server, up, down, weights, sends)
