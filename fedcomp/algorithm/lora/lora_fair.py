"""LoRA-FAIR: FedAvg of both factors of adapters, whose mean B is corrected towards the exact mean of the products.

J. Bian et al., "LoRA-FAIR: federated LoRA fine-tuning with aggregation and initialization refinement", ICCV 2025
(arXiv:2411.14961). The clients of the cohort begin with the same A and B, and the server has the factors that they end
with. Of an adapted matrix the means B and A miss of the exact mean

    E = sum_k p_k B_k A_k - B A = sum_k p_k (B_k - B) (A_k - A)

The server goes on with A and B + dB: the same bits as FedAvg's. The paper finds dB by cosine similarity and a penalty;
here it is that of least squares, ours, in closed form (`ridge` is lambda):

    dB = E A^T (A A^T + lambda I)^-1

It removes what of E lies in the rows of A. The paper's full text was not at hand.

Shape legend: M clients of the cohort, D parameters.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup, Weights
from fedcomp.algorithm.lora.products import stacked
from fedcomp.algorithm.models import ModelState
from fedcomp.algorithm.updates.adapter_bias import adapter_bias
from fedcomp.algorithm.updates.decoded_messages import check_decodable, send_decoded
from fedcomp.algorithm.updates.local_training import train_locally, training_metrics
from fedcomp.client import LocalSolver
from fedcomp.compressor import Compressor
from fedcomp.core.cohort import Cohort
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.core.ranges import Within


@dataclass(frozen=True)
class LoRAFAIR(Algorithm):
    """FedAvg of adapters with a corrected B; `ridge` is lambda."""

    client: LocalSolver
    uplink: Compressor
    ridge: Annotated[float, Within("(0, inf)", "it bounds the correction of B")] = 0.01
    weights: Weights = "samples"

    normalises_weights = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_decodable("LoRA-FAIR", self.uplink)

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> ModelState:
        """The first model. Raises ValueError: it has no adapters, or does not train their A."""
        LoraLayout.of(setup.tensors).check_trains_a()
        self.uplink.init(1, theta)  # it checks that the codec takes D entries
        return ModelState(theta, stats)

    def round(self, state: ModelState, cohort: Cohort, ctx: Context) -> tuple[ModelState, Metrics]:
        """One round; the metrics of the training, and `adapter/bias`, that of the means without the correction."""
        start, stats = ctx.send_model(state.theta, state.stats, cohort)
        local, stats = train_locally(self.client, start, stats, cohort, ctx)
        metrics = {**training_metrics(local), **adapter_bias(start, local.value, cohort, ctx.clients.tensors)}
        change = send_decoded("update", self.uplink, local.value, cohort, ctx)
        theta = self.corrected(LoraLayout.of(ctx.clients.tensors), state.theta + change, cohort.weight)
        return ModelState(theta, stats), metrics

    def corrected(self, layout: LoraLayout, rows: Tensor, weight: Tensor) -> Tensor:
        """[D] the mean of rows [M, D] by weights [M], with B + dB for B."""
        p = weight / weight.sum()
        mean = (p @ rows)[None]
        factors = []
        for (da, db), (a, b) in zip(layout.factors(rows - mean), layout.factors(mean), strict=True):
            left, right = (stack.double() for stack in reversed(stacked((da, db), p)))  # E is left @ right
            square = a[0].double() @ a[0].double().mT
            square = square + self.ridge * torch.eye(len(square), dtype=square.dtype, device=square.device)
            found = torch.linalg.solve(square, right @ a[0].double().mT, left=False)
            factors.append((a, b + (left @ found).to(b.dtype)))
        return layout.put(mean, factors)[0]
