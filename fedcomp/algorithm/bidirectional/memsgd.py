"""Mem-SGD: compressed messages up with an error memory at each client, dense ones down.

S. U. Stich, J.-B. Cordonnier, M. Jaggi, "Sparsified SGD with memory", NeurIPS 2018, algorithm 1 on every client;
with the scaled sign it is EF-SignSGD of S. P. Karimireddy et al., "Error feedback fixes SignSGD", ICML 2019. With u_i
the local change (minus the pseudo-gradient):

    client  m_i = C(u_i + e_i),  e_i <- u_i + e_i - m_i           server  x <- x + eta mean m_i, sent in float32

So it is FedAvg whose uplink remembers its errors. Differs from the paper: the memory is in the units of u, not
multiplied by the learning rate (the same where that is constant); epochs of local training instead of one gradient;
the last model is evaluated, not an average of models.
"""

from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.client import LocalSolver
from fedcomp.compressor import Compressor
from fedcomp.server import ServerOptimizer


def MemSGD(
    client: LocalSolver,
    server: ServerOptimizer,
    uplink: Compressor,
    downlink: Compressor,
    weights: str = "uniform",
    sends: str = "auto",
) -> FedAvg:
    """FedAvg with error memory on the uplink; the arguments are FedAvg's, `weights` "uniform" as in the paper.

    Raises ValueError: the uplink's codec cannot have an error memory.
    """
    return FedAvg(client, server, uplink.with_error_feedback("compressor"), downlink, weights, sends)
