"""FFA-LoRA: the A of every adapter stays at its first value; B is trained and averaged.

Y. Sun, Z. Li, Y. Li, B. Ding, "Improving LoRA in privacy-preserving federated learning", ICLR 2024 (arXiv:2403.12313).
What an adapter adds, s B A, is linear in B, so the mean of the clients' products is the product of the mean:

    sum_k p_k s B_k A = s (sum_k p_k B_k) A

and FedAvg, with any weights and compressors, averages exactly what it means to; half of the bits go. The frozen A is a
part of the base (`model.trains=b`): it follows from the run's key, is in no row and no message, and costs no gradient.
So this is FedAvg of such a model, whose D has B and the head alone; a model that trains A is refused under this name.

With plain SGD the product moves by -eta s^2 G A^T A for a gradient G of its matrix, which is r eta s^2 / (3 i) in the
mean for the first values of LoRA: rates are far larger than for FedAvg of both factors, and s counts twice.
"""

from dataclasses import dataclass

from torch import Tensor

from fedcomp.algorithm.contract import Setup
from fedcomp.algorithm.fedavg import FedAvg, FedAvgState
from fedcomp.core.lora_layout import LoraLayout


@dataclass(frozen=True)
class FFALoRA(FedAvg):
    """FedAvg of a model whose A is frozen; the options are FedAvg's."""

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> FedAvgState:
        """As FedAvg. Raises ValueError: the model has no adapters, or trains their A."""
        if LoraLayout.of(setup.tensors).a.size:
            raise ValueError(
                "algorithm=ffa_lora freezes the A of every adapter, but model.trains=both trains it: take "
                "model.trains=b, or algorithm=fedavg, which averages both factors"
            )
        return super().init(theta, stats, setup)
