"""FedSRD: sparse changes of adapters up, their mean product projected on one factor, and a random part of that down.

Yan et al., FedSRD, WWW 2026 (arXiv:2510.04601); authors' program `Youth-49/FedSRD_2025`. All clients hold the same A
[r, i] and B [o, r] of each adapted matrix. In a round

    client k    trains both from there. Each change is pruned by its importance, |dA| times the length of the column of
                its own B that it meets, |dB| times that of the row of A: `base` + min(`upper`, `curve` ln kappa) of the
                entries go, kappa the kurtosis of the importance. What is left is scaled to the 1-norm of the whole.
    server      W = sum_k p_k (B + dB_k) (A + dA_k), cut to rank r (`truncates`; the program's variant -e does not);
                T = W - B A;  in turn dB = T A^+ or dA = B^+ T (`first`)
    to all N    max(1, round((1 - `drop`) d)) random entries of the d of all dB or dA, times d over their number

What is sent up is floats with their places among the adapters' entries, down floats and the 64 bits of the mask's seed;
a trained head goes dense either way. Products are thin matrices, so that no o x i is formed; singular values of B and A
below 1e-3 of the largest are cut in B^+ and A^+, which would otherwise be unbounded. The program begins with A: while B
is 0, B^+ is 0 too, and its first round changes nothing, so that ours begins with B. The paper's full text was not at
hand. Ours: at least one entry of a factor is sent, and the cut of singular values.

Shape legend: M clients of the cohort, N clients in all, D parameters, n entries of a factor; of a matrix o outputs,
i inputs, r rank.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup, Weights
from fedcomp.algorithm.lora.products import singular, stacked
from fedcomp.algorithm.models import ModelState
from fedcomp.algorithm.updates.fragments import Fragment
from fedcomp.algorithm.updates.local_training import train_locally, training_metrics
from fedcomp.client import LocalSolver
from fedcomp.compressor import Compressor
from fedcomp.compressor.seed import SeedCost
from fedcomp.compressor.sparsifiers.randk import RandK
from fedcomp.compressor.sparsifiers.sparse_indices import compact, expand, places_field, read_places
from fedcomp.core.cohort import Cohort
from fedcomp.core.lora_layout import Factors, LoraLayout
from fedcomp.core.ranges import Within
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Float

TURNS = {"b": ("B", "A"), "a": ("A", "B")}
CUT = 1e-3
"""Of the largest singular value: what lies below it is 0 in a pseudoinverse."""
NOISE = 1e-12
"""Of a step's largest entry: what lies below it is rounding of float64."""


@dataclass(frozen=True)
class FedSRD(Algorithm):
    """Sparse changes of adapters, one factor in turn; `base` + `upper` is below 1."""

    client: LocalSolver
    base: Annotated[float, Within("[0, 1)", "the least share of entries that is pruned")] = 0.85
    upper: Annotated[float, Within("[0, 1)", "the most that kurtosis adds to algorithm.base")] = 0.11
    curve: Annotated[float, Within("[0, inf)", "the factor of the kurtosis' logarithm")] = 0.1
    truncates: bool = True
    first: Literal["b", "a"] = "b"
    drop: Annotated[float, Within("[0, 1)", "the share of the step that is left out")] = 0.9
    seed_cost: SeedCost = "sent"
    weights: Weights = "uniform"

    normalises_weights = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.base + self.upper >= 1:
            raise ValueError(
                f"algorithm.base + algorithm.upper is {self.base + self.upper:g}, but must be below 1: all is pruned"
            )

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> ModelState:
        """The first model. Raises ValueError: it has no adapters, or does not train their A."""
        LoraLayout.of(setup.tensors).check_trains_a()
        return ModelState(theta, stats)

    def round(self, state: ModelState, cohort: Cohort, ctx: Context) -> tuple[ModelState, Metrics]:
        """One round.

        Metrics: the training's; `adapter/pruned`, the share of the adapters' entries that a client did not send.
        """
        layout = LoraLayout.of(ctx.clients.tensors)
        local, stats = train_locally(self.client, state.theta, state.stats, cohort, ctx)

        kept, scale = self.kept(layout, state.theta, local.value)
        received = _send_up(layout, local.value * scale, kept, ctx)
        weight = cohort.weight / cohort.weight.sum()

        role = TURNS[self.first][ctx.round % 2]
        half = Fragment.of_factor(ctx.clients.tensors, role)
        step = half.part.take(self.projected(layout, state.theta, received, weight, role))
        codec = Compressor(RandK(1 - self.drop, seed_cost=self.seed_cost))
        step, _ = half.send_down("step", codec, step, codec.init(1, step), ctx)
        head = ctx.send_dense("head", weight @ layout.rest.take(received), ctx.everyone)
        stats = ctx.send_stats(stats, ctx.everyone)

        theta = half.part.put(state.theta, half.part.take(state.theta) + step)
        theta = layout.rest.put(theta, layout.rest.take(theta) + head)
        sent = kept.sum(1) - layout.rest.size
        metrics = {**training_metrics(local), "adapter/pruned": 1 - sent / (layout.dim - layout.rest.size)}
        return ModelState(theta, stats), metrics

    def kept(self, layout: LoraLayout, theta: Tensor, change: Tensor) -> tuple[Tensor, Tensor]:
        """(mask of the entries that are sent, factor of each) for changes [M, D] of theta [D]; both [M, D]."""
        mask, scale = torch.ones_like(change), torch.ones_like(change)
        masks, scales = [], []
        changes, first = layout.factors(change), layout.factors(theta[None])
        for (da, db), (a0, b0) in zip(changes, first, strict=True):
            lengths_a, lengths_b = a0.norm(dim=2)[:, None], (b0 + db).norm(dim=1)[:, :, None]
            pairs = [self._largest(da, da.abs() * lengths_b), self._largest(db, db.abs() * lengths_a)]
            masks.append((pairs[0][0], pairs[1][0]))
            scales.append((pairs[0][1], pairs[1][1]))
        return layout.put(mask, masks).bool(), layout.put(scale, scales)

    def _largest(self, change: Tensor, importance: Tensor) -> Factors:
        """Mask and scale of the most important entries of each client's factor [M, ...]."""
        size, each = importance.flatten(1), change.flatten(1).abs()
        num = size.shape[1]
        share = self.base + (self.curve * kurtosis(size).log()).clamp(max=self.upper)
        keeps = num - (share * num).floor().clamp(max=num - 1)
        order = size.argsort(dim=1, descending=True, stable=True)
        chosen = (torch.arange(num, device=size.device) < keeps[:, None]).to(each.dtype)
        mask = torch.zeros_like(each).scatter(1, order, chosen)
        left = (each * mask).sum(1)
        scale = torch.where(left > 0, each.sum(1) / left, 1.0)
        return mask.view_as(change), scale[:, None].expand_as(each).reshape(change.shape)

    def projected(self, layout: LoraLayout, theta: Tensor, change: Tensor, weight: Tensor, role: str) -> Tensor:
        """[D] the step of A or B (`role`) that brings theta [D] to the mean of what clients' changes [M, D] make."""
        steps = []
        changes, first = layout.factors(change.double()), layout.factors(theta[None].double())
        for one, (da, db), (a0, b0) in zip(layout.matrices, changes, first, strict=True):
            a, b = stacked((a0 + da, b0 + db), weight.double())
            if self.truncates:
                u, s, vt = singular(a, b)
                a, b = vt[: one.rank], (u * s)[:, : one.rank]
            left, right = torch.cat((b, -b0[0]), 1), torch.cat((a, a0[0]))  # T is left @ right
            if role == "A":
                steps.append((torch.linalg.pinv(b0[0], rtol=CUT) @ left @ right, torch.zeros_like(b0[0])))
            else:
                steps.append((torch.zeros_like(a0[0]), left @ (right @ torch.linalg.pinv(a0[0], rtol=CUT))))
        return layout.put(torch.zeros_like(theta)[None], [(_rounded(a)[None], _rounded(b)[None]) for a, b in steps])[0]


def _rounded(x: Tensor) -> Tensor:
    """x with 0 for what is rounding alone: a B of nothing else would have an unbounded inverse."""
    return torch.where(x.abs() > NOISE * x.abs().max(), x, 0.0)


def kurtosis(x: Tensor) -> Tensor:
    """[M] E (x - mean)^4 / (E (x - mean)^2)^2 of each row of x [M, n], at least 1; 1 where all entries are equal."""
    square = (x.double() - x.double().mean(1, keepdim=True)).square()
    spread = square.mean(1).square()
    return torch.where(spread > 0, square.square().mean(1) / spread, 1.0).clamp(min=1)


def _send_up(layout: LoraLayout, rows: Tensor, kept: Tensor, ctx: Context) -> Tensor:
    """The cohort sends the entries of rows [M, D] under the mask, the head dense; as received, 0 in all others."""
    adapters = layout.rest.rest
    chosen, values = adapters.take(kept), adapters.take(rows)
    fields = {
        "places": places_field(chosen),
        "values": Field(
            compact(values, chosen), Float(), chosen.sum(1), count_known=True, count_from=lambda row: len(row["places"])
        ),
    }
    if layout.rest.size:
        fields["head"] = Field(layout.rest.take(rows), Float())
    received = ctx.link.up(Payload(fields)).fields
    there = read_places(received["places"], adapters.size)
    sparse = expand(received["values"].data, there)
    whole = adapters.put(torch.zeros_like(rows), sparse)
    return layout.rest.put(whole, received["head"].data) if layout.rest.size else whole
