"""HetLoRA: adapters of different ranks, filled up with zeros, averaged by the sizes of their products, and cut again.

Y. J. Cho et al., "Heterogeneous LoRA for federated fine-tuning of on-device foundation models", EMNLP 2024
(arXiv:2401.06432). The server has A [r, i] and B [o, r] of the largest rank; client k is sent their first r_k
components, trains them, and sends them. Filled up with zeros,

    A = sum_k w_k A_k,  B = sum_k w_k B_k,   w_k proportional to ||B_k A_k||_F   for each adapted matrix

so that components behind the smallest rank are averaged with zeros; `dilute=false`, ours, divides each component by
the weights of the clients that have it. A component that nobody in the cohort has stays as it is: with zeros in its
place, no later client could train it again.

The paper's full text was not at hand: that the weights are of each matrix by itself is our choice; `norms=false` leaves
the norms out, and `weights=samples` makes them count beside the clients' samples. With equal ranks and norms=false it
is FedAvg of the adapters.

Shape legend: M clients of the cohort, N clients in all, D parameters, C running statistics, K adapted matrices; of one
o outputs, i inputs, r rank.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context, Metrics, Setup, Weights
from fedcomp.algorithm.lora.components import Components, train_own
from fedcomp.algorithm.lora.products import product_norms
from fedcomp.algorithm.lora.ranks import RankedAdapters
from fedcomp.algorithm.lora.self_pruning import SelfPruning
from fedcomp.compressor.dense import Dense
from fedcomp.core.cohort import Cohort
from fedcomp.core.lora_layout import Factors
from fedcomp.core.pytree import put_rows, take_rows
from fedcomp.core.ranges import Within


@dataclass(frozen=True)
class HetLoRAState:
    """What lives from round to round.

    Attributes:
        theta: [D] the server's model, of the largest rank. stats: [C] its running statistics.
        ranks: [N, K] int64 of every client.
    """

    theta: Tensor
    stats: Tensor
    ranks: Tensor


@dataclass(frozen=True)
class HetLoRA(RankedAdapters):
    """Zero-padded means of adapters; for `gamma` and `penalty` see `self_pruning.py`."""

    norms: bool = True
    dilute: bool = True
    weights: Weights = "uniform"
    gamma: Annotated[float | None, Within("(0, 1)", "the share of components that pruning keeps")] = None
    penalty: Annotated[float, Within("[0, inf)", "the weight of what may be pruned")] = 0.001

    normalises_weights = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma is not None and not isinstance(self.uplink.codec, Dense):
            raise ValueError("algorithm.gamma changes what a client has while it trains: take compressor=dense")

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> HetLoRAState:
        """The first adapters. ValueError: the model has none, or other ranks."""
        return HetLoRAState(theta, stats, self.first_ranks(theta, setup))

    def round(self, state: HetLoRAState, cohort: Cohort, ctx: Context) -> tuple[HetLoRAState, Metrics]:
        components, own = Components.of(ctx.clients.tensors), take_rows(state.ranks, cohort)
        pruning = SelfPruning(components, self.gamma or 1.0, self.penalty)
        start, local, stats, metrics = train_own(
            self.client,
            components,
            state.theta,
            state.stats,
            own,
            self.ranks is None and self.gamma is None,
            cohort,
            ctx,
            pruning.hook if self.gamma else None,
        )
        if self.gamma:
            own = pruning.send_up(start, local.value, own, ctx)
            metrics["adapter/rank"] = own.to(state.theta.dtype).mean(1)
        received = components.send_up(local.value, start, own, self.uplink, cohort, ctx)

        layout, rest = components.layout, components.layout.rest
        old = layout.factors(state.theta[None])
        new = [
            self._mean(pair, before, own[:, number], cohort.weight)
            for number, (pair, before) in enumerate(zip(layout.factors(received), old, strict=True))
        ]
        theta = layout.put(state.theta[None], new)[0]
        theta = rest.put(theta, (cohort.weight / cohort.weight.sum()) @ rest.take(received))
        return HetLoRAState(theta, stats, put_rows(state.ranks, cohort, own)), metrics

    def _mean(self, factors: Factors, old: Factors, ranks: Tensor, weight: Tensor) -> Factors:
        """(A [1, r, i], B [1, o, r]) of one matrix from the clients' [M, ...], of these ranks [M] and weights [M]."""
        a, b = factors
        if self.norms:
            own = weight * product_norms(factors)
            weight = torch.where(own.sum() > 0, own, weight)
        has = torch.arange(a.shape[1], device=a.device) < ranks[:, None]
        total = weight @ has.to(weight.dtype)  # [r] of the clients that have the component
        share = (weight / weight.sum())[:, None].expand_as(has) if self.dilute else weight[:, None] / total
        share = torch.where(has & (total > 0), share, 0.0)  # [M, r]
        kept = (total == 0).to(a.dtype)  # components that nobody has
        mean_a = torch.einsum("mr,mri->ri", share, a) + kept[:, None] * old[0][0]
        mean_b = torch.einsum("mr,mor->or", share, b) + kept * old[1][0]
        return mean_a[None], mean_b[None]
