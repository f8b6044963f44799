"""FlexLoRA: the mean of the clients' products, factored anew by its singular values for every client's rank.

J. Bai et al., "Federated fine-tuning of large language models under heterogeneous tasks and client resources", NeurIPS
2024 (arXiv:2402.11505). With HLoRA (Q. Liu et al., arXiv:2503.00813) the same sum is factored. Of each adapted matrix
the server has the clients' B_k [o, r_k] and A_k [r_k, i] and computes

    sum_k p_k B_k A_k = U S V^T;    client k is sent B = U S, A = V^T in the first r_k components

by QR of the stacks and the singular values of a small matrix, so that no o x i is formed. The scale s is the same for
clients of every rank (`ranks.py`), so that it cancels. Truncation at rank r loses the components behind it, for good
unless the server keeps them (`residual`, ours): it adds them to the next sum, and nothing is sent for them.

Papers' full texts were not at hand: the side that has the singular values is our choice. A component of U and V may
change its sign or its place from round to round, so that a client's moments would mean nothing: they begin anew.

Shape legend: N clients in all, D parameters, C running statistics, K adapted matrices; of one o outputs, i inputs,
r rank, e kept components beyond it; E the sum of e (o + i).
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context, Metrics, Setup
from fedcomp.algorithm.lora.components import Components, train_own
from fedcomp.algorithm.lora.products import singular, stacked
from fedcomp.algorithm.lora.ranks import RankedAdapters
from fedcomp.core.cohort import Cohort
from fedcomp.core.lora_layout import Factors, LoraLayout, LoraMatrix
from fedcomp.core.pytree import take_rows
from fedcomp.core.ranges import Whole

TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True)
class FlexLoRAState:
    """What lives from round to round.

    Attributes:
        theta: [D] the model, components of an adapter by falling singular value. stats: [C] its running statistics.
        residual: [E] the components behind them: A and B of each matrix.
        ranks: [N, K] int64 of every client.
    """

    theta: Tensor
    stats: Tensor
    residual: Tensor
    ranks: Tensor


@dataclass(frozen=True)
class FlexLoRA(RankedAdapters):
    """Adapters redistributed by singular values."""

    residual: Annotated[int, Whole(0, "components that the server keeps")] = 0

    normalises_weights = True

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> FlexLoRAState:
        """The first adapters, and no residual. ValueError: the model has none, or other ranks."""
        ranks, layout = self.first_ranks(theta, setup), LoraLayout.of(setup.tensors)
        size = sum(self._kept(one) * (one.inputs + one.outputs) for one in layout.matrices)
        return FlexLoRAState(theta, stats, theta.new_zeros(size), ranks)

    def round(self, state: FlexLoRAState, cohort: Cohort, ctx: Context) -> tuple[FlexLoRAState, Metrics]:
        """One round.

        Metrics: the training's; `adapter/energy_<r>`, the share of the mean products' squared norm that the first r
        components have, for each rank r of the clients.
        """
        components, own = Components.of(ctx.clients.tensors), take_rows(state.ranks, cohort)
        start, local, stats, metrics = train_own(
            self.client, components, state.theta, state.stats, own, self.ranks is None, cohort, ctx
        )
        received = components.send_up(local.value, start, own, self.uplink, cohort, ctx)

        weight = cohort.weight / cohort.weight.sum()
        layout, rest = components.layout, components.layout.rest
        found, left, energies = [], [], []
        kept = self._residuals(layout, state.residual)
        for one, pair, (more_a, more_b) in zip(layout.matrices, layout.factors(received), kept, strict=True):
            a, b = stacked(pair, weight)
            u, s, vt = singular(torch.cat((a, more_a)).double(), torch.cat((b, more_b), 1).double())
            a, b = vt.to(a.dtype), (u * s).to(b.dtype)
            found.append(_first(a, b, one.rank))
            left.append(_first(a[one.rank :], b[:, one.rank :], self._kept(one)))
            energies.append(s.square())
        theta = layout.put(state.theta[None], [(a[None], b[None]) for a, b in found])[0]
        theta = rest.put(theta, weight @ rest.take(received))
        residual = torch.cat([part.flatten() for pair in left for part in pair])
        whole = torch.stack([each.sum() for each in energies]).sum().clamp(min=TINY)
        for rank in sorted(set(state.ranks.flatten().tolist())):
            share = torch.stack([each[:rank].sum() for each in energies]).sum() / whole
            metrics[f"adapter/energy_{rank}"] = share.to(theta.dtype)
        return FlexLoRAState(theta, stats, residual, state.ranks), metrics

    def _kept(self, one: LoraMatrix) -> int:
        """e: no more than there can be."""
        return min(self.residual, max(0, min(one.outputs, one.inputs) - one.rank))

    def _residuals(self, layout: LoraLayout, residual: Tensor) -> list[Factors]:
        """(A [e, i], B [o, e]) of each matrix."""
        shapes = [shape for one in layout.matrices for shape in self._shapes(one)]
        sizes = [high * wide for high, wide in shapes]
        parts = [part.view(shape) for part, shape in zip(residual.split(sizes), shapes, strict=True)]
        return list(zip(parts[::2], parts[1::2], strict=True))

    def _shapes(self, one: LoraMatrix) -> tuple[tuple[int, int], tuple[int, int]]:
        kept = self._kept(one)
        return (kept, one.inputs), (one.outputs, kept)


def _first(a: Tensor, b: Tensor, num: int) -> Factors:
    """The first `num` rows of a and columns of b, filled up with zeros where there are fewer."""
    lacking = max(0, num - len(a))
    return (torch.nn.functional.pad(a[:num], (0, 0, 0, lacking)), torch.nn.functional.pad(b[:, :num], (0, lacking)))
