"""FedSparsify: clients prune their weights while they train, and send those that are left.

D. Stripelis, U. Gupta, G. Ver Steeg, J. L. Ambite, "Federated progressive sparsification (purge, merge, tune)+", 2022
(arXiv:2204.12430); as FedMRN's table 1 compares with it, at 97 % sparsity.

Weights are pruned, not updates: after every local epoch the smallest |w| over all weight matrices together are set to
zero and stay so until the round's end, whatever momenta make of them; after the last epoch the client sends the k
weights that are left, with their indices, and everything else (biases, normalisation) dense. The server averages the
sparse models, or, with `merge: majority`, only the weights that at least floor(M / 2) clients kept. Its model is the
union of the clients', so it goes down dense. FedMRN's paper counts 32 k bits; the indices are counted here.

One threshold for all matrices may leave one of them empty, and nothing of the input passes it ("layer-collapse", Tanaka
et al., arXiv:2006.05467): the run says so. A layer's first weights are below 1 / sqrt(its inputs), so that the constant
schedule, which prunes after the first epoch, may empty the widest before anything is learnt; the progressive one
prunes later.

The schedule of the sparsity over rounds t = 0, ..., T is s_t = s_T + (s_0 - s_T) (1 - (F floor(t / F) - t_0) /
(T - t_0))^3 (the official test script; its trainer has another), or constant; FedMRN says only "97 %".

Shape legend: M clients of the cohort, A of them at work, D parameters, d of them in weight matrices.
"""

import logging
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup
from fedcomp.algorithm.models import ModelState
from fedcomp.algorithm.updates.local_training import train_cohort, training_metrics
from fedcomp.client import Batch, GradFn, Gradient, LocalData, LocalResult, LocalSolver
from fedcomp.compressor.sparsifiers.sparse_indices import IndexCode
from fedcomp.compressor.sparsifiers.topk import TopK, stable_topk
from fedcomp.core.cohort import Cohort
from fedcomp.core.parameter_layout import WEIGHT, ParameterSubset, ParameterTensor
from fedcomp.core.ranges import Whole, Within

log = logging.getLogger("fedcomp")

Sparsity = Annotated[float, Within("[0, 1)", "the share of weights that are zero")]


@dataclass(frozen=True)
class FedSparsify(Algorithm):
    """Pruning during local training, mean of the sparse models.

    Attributes:
        sparsity, first_sparsity, start, every: s_T, s_0, t_0 and F.
        positions: how indices are written (compressor/sparsifiers/topk.py).
    """

    client: LocalSolver
    sparsity: Sparsity = 0.97
    schedule: Literal["constant", "progressive"] = "constant"
    first_sparsity: Sparsity = 0.0
    start: Annotated[int, Whole(0, "the round in which pruning begins")] = 0
    every: Annotated[int, Whole()] = 1
    merge: Literal["mean", "majority"] = "mean"
    positions: IndexCode = "auto"
    weights: str = "samples"

    normalises_weights = True

    @property
    def when_slow(self) -> str:
        """The constant schedule prunes what has learnt nothing yet."""
        if self.schedule == "constant" and self.sparsity:
            return (
                "weights are pruned before they have learnt: algorithm.schedule=progressive, a lower "
                "algorithm.sparsity, or more rounds"
            )
        return "so sparse a model may be too small: a lower algorithm.sparsity, or more rounds"

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> ModelState:
        """The model's own first weights, dense. Raises ValueError: there is nothing to prune."""
        if not _matrices(setup.tensors).size:
            raise ValueError(
                "algorithm=fedsparsify prunes weight matrices, and this model has none: choose another model"
            )
        return ModelState(theta, stats)

    def round(self, state: ModelState, cohort: Cohort, ctx: Context) -> tuple[ModelState, Metrics]:
        """One round; `model/sparsity` is the share of zeros that clients send, `model/zeros` that of the server."""
        part = _matrices(ctx.clients.tensors)
        start, stats = ctx.send_model(state.theta, state.stats, cohort)
        kept = self.num_kept(part.size, *ctx.progress)

        local, stats = self._train(start, stats, part, kept, cohort, ctx)
        common = replace(ctx.common("weights", cohort), layers=part.layers)
        codec = TopK(k=kept, positions=self.positions)
        payload = ctx.link.up(codec.encode(part.take(local.value), common, ctx.sender_key("weights")))
        sparse = codec.decode(payload, common)
        weight = cohort.weight / cohort.weight.sum()
        merged = torch.mv(sparse.t(), weight)
        if self.merge == "majority":
            agreed = (sparse != 0).sum(0) >= max(cohort.size // 2, 1)
            merged = torch.where(agreed, merged, 0.0)
        self._say_what_is_emptied(part, part.take(start), merged, ctx.round)
        dense = ctx.gather_dense("dense", part.rest.take(local.value), cohort, paper_bits=0)
        theta = part.rest.put(part.put(start, merged), dense)
        metrics = {
            **training_metrics(replace(local, value=local.value - start)),
            "model/sparsity": (part.take(local.value) == 0).to(torch.float32).mean(1),
            "model/zeros": (merged == 0).to(torch.float32).mean(),
        }
        return ModelState(theta, stats), metrics

    def sparsity_at(self, round_index: int, num_rounds: int) -> float:
        """s_t of round t = `round_index`, the last of `num_rounds` being T."""
        if self.schedule == "constant":
            return self.sparsity
        last = max(num_rounds - 1, self.start + 1)
        now = self.every * (round_index // self.every)
        done = min(max((now - self.start) / (last - self.start), 0.0), 1.0)
        return self.sparsity + (self.first_sparsity - self.sparsity) * (1 - done) ** 3

    def num_kept(self, dim: int, round_index: int, num_rounds: int) -> int:
        """k = ceil((1 - s_t) d), at least 1."""
        exact = (1 - self.sparsity_at(round_index, num_rounds)) * dim
        return max(1, min(dim, -int(-exact // 1) if exact - int(exact) > 1e-6 else int(exact)))

    def _say_what_is_emptied(self, part: ParameterSubset, old: Tensor, new: Tensor, round_index: int) -> None:
        """A line if matrices had weights before the round, old [d], and have none after, new [d]."""
        pairs = zip(old.split(part.layers), new.split(part.layers), strict=True)
        emptied = torch.stack([before.any() & ~after.any() for before, after in pairs]).tolist()
        if not any(emptied):
            return
        named = enumerate(zip(part.layers, emptied, strict=True), 1)
        which = "; ".join(f"number {number}, of {size:,} weights" for number, (size, is_empty) in named if is_empty)
        later = "algorithm.schedule=progressive, which prunes later, or " if self.schedule == "constant" else ""
        log.warning(
            "round %d: pruning leaves no weight in %d of %d matrices (%s), and nothing of the input passes there, "
            "unless a connection skips it: %sa lower algorithm.sparsity",
            round_index + 1,
            sum(emptied),
            len(emptied),
            which,
            later,
            extra={"note": True},
        )

    def _train(
        self, start: Tensor, stats: Tensor, part: ParameterSubset, kept: int, cohort: Cohort, ctx: Context
    ) -> tuple[LocalResult, Tensor]:
        def train(data: LocalData, theta: Tensor, stats: Tensor) -> LocalResult:
            mask = torch.ones(theta.shape[0], part.size, dtype=torch.bool, device=theta.device)
            local = self.client.run(data, theta, stats, ctx.progress, self._hook(data, part, kept, mask))
            weights = part.take(local.value) * mask
            return LocalResult(part.put(local.value, weights * _largest(weights, kept)), local.stats, local.loss)

        return train_cohort(train, start, stats, cohort, ctx)

    def _hook(self, data: LocalData, part: ParameterSubset, kept: int, mask: Tensor) -> GradFn:
        """Prunes at the end of every epoch, and holds zero what is pruned; `mask` [M, d] is what is left, in place."""
        batching = self.client.batching
        per_epoch = [max(1, -(-num // batching.batch_size)) for num in data.num_samples.tolist()]

        def gradient(theta: Tensor, batch: Batch, step: int) -> Gradient:
            rows = batch.num_rows
            weights, own = part.take(theta), mask[:rows]
            ends = [step > 0 and step % steps == 0 for steps in per_epoch[:rows]]
            if any(ends):
                chosen = torch.tensor(ends, device=theta.device)[:, None]
                own.copy_(torch.where(chosen, own & _largest(weights * own, kept), own))
            part.put_(theta, weights * own)
            plain = data.gradient(theta, batch, step)
            return Gradient(part.put(plain.grad, part.take(plain.grad) * own), plain.loss, plain.stats)

        return gradient


def _largest(weights: Tensor, kept: int) -> Tensor:
    """[M, d] bool: the k largest |w| of each row; of equal ones the first."""
    return torch.zeros_like(weights, dtype=torch.bool).scatter_(1, stable_topk(weights.abs(), kept), True)


def _matrices(tensors: tuple[ParameterTensor, ...]) -> ParameterSubset:
    return ParameterSubset.of(tensors, lambda tensor: tensor.kind == WEIGHT)
