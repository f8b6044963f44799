"""FLoRA: adapters begin anew in every round, and the sum of their products is added to the base.

Z. Wang et al., "FLoRA: federated fine-tuning large language models with heterogeneous low-rank adaptations", NeurIPS
2024 (arXiv:2409.05976); authors' program `ATP-1010/FederatedLLM`. Client k trains its own A_k [r_k, i], drawn from the
run's key, and B_k [o, r_k], 0 at first, of its own rank (`ranks`); the server stacks

    SA = [p_1 A_1; ...; p_M A_M],  SB = [B_1, ..., B_M],  W <- W + s SB SA = W + sum_k p_k s B_k A_k

for each adapted matrix W: the exact mean of the products. The base W_0 stays as it is; W - W_0 is the state's `change`,
to which everybody adds, idle clients too: so what changes it goes to all N. Down go the stacks, or the sum itself where
that has fewer entries than the stacks of this cohort (`sends`); what is trained beside the adapters goes along.

Unlike the program, clients of every rank have the same scale s, the model's (there alpha_k = 2 r_k, so s = 2, too), and
what is trained beside the adapters is averaged. A client's optimiser begins anew in every round, as its adapter does.

Shape legend: M clients of the cohort, N clients in all, D parameters, C running statistics, K adapted matrices; of one
o outputs, i inputs; R the sum of the cohort's ranks; n the sum of o i.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context, Metrics, Models, Setup
from fedcomp.algorithm.lora.components import Components, fresh_factors
from fedcomp.algorithm.lora.products import stacked
from fedcomp.algorithm.lora.ranks import RankedAdapters
from fedcomp.algorithm.updates.local_training import train_cohort
from fedcomp.algorithm.updates.metrics import lengths
from fedcomp.client import LocalData, LocalResult
from fedcomp.core.cohort import Cohort
from fedcomp.core.lora_layout import LoraLayout, LoraMatrix
from fedcomp.core.pytree import take_rows
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Float


@dataclass(frozen=True)
class FLoRAState:
    """What lives from round to round.

    Attributes:
        theta: [D] what is trained beside the adapters; B is 0, so that A says nothing. stats: [C] running statistics.
        change: [n] W - W_0 of every adapted matrix, row by row.
        ranks: [N, K] int64 of every client.
    """

    theta: Tensor
    stats: Tensor
    change: Tensor
    ranks: Tensor


@dataclass(frozen=True)
class FLoRA(RankedAdapters):
    """Stacked adapters, added to the base. With `sends=shortest` each matrix goes down as what has fewer entries."""

    sends: Literal["stack", "weights", "shortest"] = "shortest"

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> FLoRAState:
        """The base with the first adapter, 0 as a rule, added. ValueError: the model has none, or other ranks."""
        ranks, layout = self.first_ranks(theta, setup), LoraLayout.of(setup.tensors)
        change = [one.scale * (b @ a) for (a, b), one in zip(layout.factors(theta[None]), layout.matrices, strict=True)]
        theta = layout.b.put(theta, torch.zeros_like(layout.b.take(theta)))
        first = torch.cat([part.flatten() for part in change])
        return FLoRAState(theta, stats, first, ranks)

    def round(self, state: FLoRAState, cohort: Cohort, ctx: Context) -> tuple[FLoRAState, Metrics]:
        """One round.

        Metrics: the training's; `adapter/stack`, the largest R; `adapter/moved`, the length of W - W_0.
        """
        components = Components.of(ctx.clients.tensors)
        own, rest = take_rows(state.ranks, cohort), components.layout.rest
        start = fresh_factors(components, state.theta, own, ctx.key.fold_in("fresh"), cohort.ids)

        def train(data: LocalData, theta: Tensor, stats: Tensor) -> LocalResult:
            return self.client.run(data, theta, stats, ctx.progress)

        there = replace(ctx, clients=ctx.clients.moved(state.change))
        local, stats = train_cohort(train, start, state.stats, cohort, there)
        update = local.value - start
        rows = rest.put(local.value, rest.take(update))
        known = rest.put(start, torch.zeros_like(rest.take(start)))

        received = components.send_up(rows, known, own, self.uplink, cohort, ctx)
        head = cohort.weight @ rest.take(received)
        change, head = self._send(components, received, own, cohort.weight, head, ctx)
        stats = ctx.send_stats(stats, ctx.everyone)

        moved = state.change + change
        metrics = {
            "train/loss": local.loss,
            "update/norm": lengths(update),
            "adapter/stack": own.sum(0).max().to(moved.dtype),
            "adapter/moved": torch.linalg.vector_norm(moved),
        }
        theta = rest.put(state.theta, rest.take(state.theta) + head)
        return FLoRAState(theta, stats, moved, state.ranks), metrics

    def evaluation_models(self, state: FLoRAState, key: Key) -> Mapping[str, Models]:
        """What is trained beside the adapters, over the moved base."""
        return {"test": Models(state.theta[None], state.stats[None], state.change)}

    def _send(
        self, components: Components, rows: Tensor, ranks: Tensor, weight: Tensor, head: Tensor, ctx: Context
    ) -> tuple[Tensor, Tensor]:
        """To all N: of every matrix the stacks of rows [M, D], or their product, and the step of the head.

        Returns what follows from the message: the change of the base [n], and the step.
        """
        matrices, pieces = components.layout.matrices, []
        dense = [self._sends_sum(total, one) for total, one in zip(ranks.sum(0).tolist(), matrices, strict=True)]
        for number, pair in enumerate(components.layout.factors(rows)):
            one, (a, b) = matrices[number], stacked(pair, weight)
            had = (torch.arange(one.rank, device=ranks.device) < ranks[:, number, None]).flatten()
            a, b = a[had], b[:, had]
            pieces += [one.scale * (b @ a)] if dense[number] else [a, b]
        arrived = iter(_to_all([*pieces, head], ctx))
        change = []
        for is_sum, one in zip(dense, matrices, strict=True):
            first = next(arrived)
            change.append(first if is_sum else one.scale * (next(arrived) @ first))
        return torch.cat([part.flatten() for part in change]), next(arrived)

    def _sends_sum(self, total: int, one: LoraMatrix) -> bool:
        """Whether a matrix goes down as the sum, where the cohort's ranks sum to `total`."""
        if self.sends == "shortest":
            return one.outputs * one.inputs < total * (one.outputs + one.inputs)
        return self.sends == "weights"


def _to_all(tensors: Sequence[Tensor], ctx: Context) -> list[Tensor]:
    """Tensors from the server to all clients, in one message; as received."""
    sizes = [tensor.numel() for tensor in tensors]
    payload = Payload({"change": Field(torch.cat([tensor.flatten() for tensor in tensors])[None], Float())})
    (received,) = ctx.link.broadcast(payload, ctx.everyone).expect(change=sum(sizes))
    return [part.view(tensor.shape) for part, tensor in zip(received[0].split(sizes), tensors, strict=True)]
