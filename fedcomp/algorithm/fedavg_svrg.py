"""FedAvg-SVRG: FedAvg whose clients take the variance out of their stochastic steps.

M. Rostami, S. S. Kia, "Federated learning using variance reduced stochastic gradient for probabilistically activated
agents", ACC 2023, algorithm 1. It is FedAvg with the local solver `client/svrg.py`, which says what differs from the
paper; the weights 1/(N p_n) come with `participation=bernoulli`. Without that solver it would be FedAvg, and so a run
under this name with another one is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.client.svrg import Svrg


@dataclass(frozen=True)
class FedAvgSVRG(FedAvg):
    """FedAvg with SVRG at the clients; the arguments are FedAvg's, `weights` "uniform" as in the paper."""

    needs: ClassVar[Mapping[str, type]] = {"client": Svrg}

    weights: str = "uniform"
