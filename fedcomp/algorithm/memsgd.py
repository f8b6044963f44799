"""Mem-SGD: compressed messages up with an error memory at each client, dense ones down.

S. U. Stich, J.-B. Cordonnier, M. Jaggi, "Sparsified SGD with memory", NeurIPS 2018, algorithm 1 on every client;
with the scaled sign it is EF-SignSGD of S. P. Karimireddy et al., "Error feedback fixes SignSGD", ICML 2019. With u_i
the local change (minus the pseudo-gradient):

    client  m_i = C(u_i + e_i),  e_i <- u_i + e_i - m_i           server  x <- x + eta mean m_i, sent in float32

So it is FedAvg whose uplink remembers its errors. Differs from the paper: the memory is in the units of u, not
multiplied by the learning rate (the same where that is constant); epochs of local training instead of one gradient;
the last model is evaluated, not an average of models.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.algorithm.updates.error_feedback import remembering


@dataclass(frozen=True)
class MemSGD(FedAvg):
    """FedAvg with error memory on the uplink.

    Attributes:
        client, server, uplink, downlink: as FedAvg's; the uplink is given an error memory.
        weights: "uniform" as in the paper, or "samples". sends: as FedAvg's.
    """

    weights: str = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "uplink", remembering(self.uplink, "compressor"))
