"""FedProx: FedAvg whose clients are pulled back to the model that they were sent.

T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith, "Federated optimization in heterogeneous networks",
MLSys 2020, algorithm 2. Client i minimises f_i(y) + (mu / 2) ||y - x||^2 from y = x, with any solver and for as long as
it likes; the server averages. The pull is an option of every local solver (`client.proximal`), so that this is FedAvg,
with any compressor and feedback; without a pull a run under this name is refused.

It is not exact where the f_i differ: its fixed point has sum_i grad f_i(prox_i(x)) = 0. Larger mu is less biased, as
1 / mu^2, and slower, as 1 / mu. Differs from the paper: weights by samples as an option; no stragglers, which make
fewer epochs there and are dropped from FedAvg (a good part of its published gain). The authors' program loses the
centre x after the first step where gradients are sparse (embeddings).
"""

from dataclasses import dataclass

from fedcomp.algorithm.fedavg import FedAvg


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg with a proximal term at the clients, whose `proximal` is above 0; the arguments are FedAvg's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.client.proximal:
            raise ValueError(
                "client.proximal=0 makes FedProx FedAvg: give its mu, for instance client.proximal=0.01, or take "
                "algorithm=fedavg"
            )
