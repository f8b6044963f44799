"""FedMUD: clients train factors of the update since the last reset, and send them.

S. Li et al., "FedMUD: model update decomposition", ICML 2025 (arXiv:2505.23176); official code
`Leopold1423/fedmud-icml25`, where it is called "dmu". Three parts, which can be chosen independently:

    MUD   the model is W_0 + fold(x) with factors x of few numbers; after every s rounds (`interval`)
          W_0 <- W_0 + fold(mean x), and the factors begin anew
    BKD   block-wise Kronecker products instead of thin matrices (`type: kron`, factors.py)
    AAD   aggregation-aware: one side of each product is fixed and known, so that the mean of factors is the factors of
          the mean (`pattern: fab+cfd`)

A client takes SGD steps on x, and on the dense parameters beside it, from the last round's means; the server averages.
Everybody has to follow W_0 through the resets, so the means go to all N clients (`sends: factors`).

From a reset, with rate eta and fixed numbers of variance v, the first step is -eta g times the gradient in the mean,
with g = r v (fab) or 2 r v (fab+cfd) for matrices of rank r, v or 2 v for Kronecker blocks. `distribution: auto` makes
g = 1; the official 5 (uniform) with eta = 0.01 has eta g = 0.167. `mud/effective_rate` logs it.

Unlike the code: every fixed factor has draws of its own (there all layers share a seed before the first reset, and F =
G for Kronecker blocks); clients count by their samples. As in the code, `search` lowers the ratio by 0.001 until all
trained numbers, dense ones too, are at most ratio + 0.001 of the model's, or nothing is left to lower: a large last
layer then leaves rank 1 everywhere.

Shape legend: M clients of the cohort, A of them at work, D parameters, d of them decomposed into F trained and X fixed
numbers, E dense ones, C running statistics. Trained rows are [M, F + E].
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup
from fedcomp.algorithm.low_rank.factors import FactorPattern, Factors, FactorType, Product, View
from fedcomp.algorithm.updates.local_training import train_cohort
from fedcomp.client import Batch, Gradient, Hook, LocalData, LocalResult, LocalSolver, Reads
from fedcomp.client.muon import Muon
from fedcomp.core.cohort import Cohort
from fedcomp.core.parameter_layout import WEIGHT, ParameterSubset, ParameterTensor, is_normalisation
from fedcomp.core.ranges import Whole, Within
from fedcomp.random.keys import Key

LOWERED_BY = 0.001


@dataclass(frozen=True)
class FedMUDState:
    """What lives from round to round.

    Attributes:
        theta: [D] the model W_0 + fold(x). base: [d] W_0. factors: [F] x. fixed: [X] fixed factors.
        stats: [C] running statistics.
    """

    theta: Tensor
    base: Tensor
    factors: Tensor
    fixed: Tensor
    stats: Tensor


@dataclass(frozen=True)
class FedMUD(Algorithm):
    """Factors of the update up and down.

    Attributes:
        client: trains factors and dense parameters; its memories begin anew in every round. interval: s.
        distribution: of fixed factors (of ab: of the left ones): auto; uniform on (-magnitude, magnitude); normal with
            this standard deviation.
        sends: factors, to all N clients; model, W_0 with the factors to those who take part.
    """

    client: LocalSolver
    type: FactorType = "kron"
    pattern: FactorPattern = "fab+cfd"
    ratio: Annotated[float, Within("(0, 1]", "the share of numbers that are trained")] = 0.03125
    search: bool = True
    skip_first: Annotated[int, Whole(0)] = 1
    skip_last: Annotated[int, Whole(0)] = 1
    interval: Annotated[int, Whole()] = 1
    distribution: Literal["auto", "uniform", "normal"] = "auto"
    magnitude: Annotated[float, Within("(0, inf)", "the size of fixed factors")] = 5.0
    view: View = "memory"
    sends: Literal["factors", "model"] = "factors"
    weights: str = "samples"

    normalises_weights = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.client, Muon):
            raise ValueError(
                "client=muon orthogonalises steps of weight matrices, and algorithm=fedmud trains factors of them: "
                "take client=sgd, adam or adamw"
            )
        if self.distribution == "auto" and self.pattern == "ab":
            raise ValueError(
                "algorithm.distribution=auto sets the first step's size, which algorithm.pattern=ab has not: its right "
                "factor is 0. Take algorithm.distribution=uniform or normal with algorithm.magnitude"
            )

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> FedMUDState:
        """The first model and factors. Raises ValueError: no weights that could be decomposed."""
        part = self.part(setup.tensors)
        if not part.size:
            raise ValueError(
                f"algorithm=fedmud decomposes weight tensors, and algorithm.skip_first={self.skip_first} and "
                f"skip_last={self.skip_last} leave none of this model's: lower them, or choose another model"
            )
        x, fixed = self._drawn(self.factors(setup.tensors), theta, setup.key.fold_in("factors"))
        return FedMUDState(theta, part.take(theta), x, fixed, stats)

    def notes(self, tensors: Sequence[ParameterTensor]) -> Sequence[str]:
        """A line if more numbers are trained than the ratio allows, as of a small model."""
        part, floats = self.part(tuple(tensors)), sum(self.factors(tuple(tensors)).trained)
        trained, total = (floats + part.dim - part.size, part.dim) if self.search else (floats, part.size)
        if trained <= (self.ratio + LOWERED_BY) * total:
            return []
        return [
            f"algorithm.ratio={self.ratio:g} cannot be met: of {total} numbers {trained} are trained and sent, a share "
            f"of {trained / total:.3g}; {floats} are the least that factors have"
            + (f", and {part.dim - part.size} are dense" if self.search else "")
        ]

    def round(self, state: FedMUDState, cohort: Cohort, ctx: Context) -> tuple[FedMUDState, Metrics]:
        """One round.

        Metrics: `mud/effective_rate` eta g; `mud/update` ||fold(x)|| / ||W_0||; `mud/floats` F; `mud/dense` E; for ab
        `mud/aggregation_error` ||fold(mean x) - mean fold(x)|| / ||mean fold(x)||.
        """
        part, factors = self.part(ctx.clients.tensors), self.factors(ctx.clients.tensors)
        base, x, fixed = state.base, state.factors, state.fixed
        if ctx.round and ctx.round % self.interval == 0:  # a reset that falls on a round without clients is left out
            base = part.take(state.theta)
            x, fixed = self._drawn(factors, state.theta, ctx.key.fold_in("factors"))
        dense, stats, num = part.rest.take(state.theta), state.stats, x.shape[0]
        if self.sends == "model":
            sent = ctx.send_dense("model", torch.cat((base, dense, x)), cohort)
            base, dense, x = sent.split((part.size, len(dense), num))
            stats = ctx.send_stats(stats, cohort)

        local, stats = self._train(torch.cat((x, dense)), base, fixed, stats, factors, cohort, ctx)
        own = sum(tensor.size for tensor in ctx.clients.tensors if is_normalisation(tensor))
        paper = 32 * (num + len(dense) - own)
        mean = ctx.gather_dense("factors", local.value, cohort, paper_bits=paper)
        if self.sends == "factors":
            mean = ctx.send_dense("factors", mean, ctx.everyone, paper_bits=paper)
            stats = ctx.send_stats(stats, ctx.everyone)
        x, dense = mean.split((num, len(dense)))
        update = factors.fold(x[None], fixed)[0]
        theta = part.put(part.rest.put(state.theta, dense), base + update)
        rate = self.client.learning_rate(ctx.progress) * self._mean_gain(factors)
        metrics = {
            "train/loss": local.loss,
            "mud/effective_rate": theta.new_full((), rate),
            "mud/update": torch.linalg.vector_norm(update) / torch.linalg.vector_norm(base).clamp(min=1e-30),
            "mud/floats": theta.new_full((), num),
            "mud/dense": theta.new_full((), len(dense)),
        }
        if self.pattern == "ab":
            wanted = (cohort.weight / cohort.weight.sum()) @ factors.fold(local.value[:, :num], fixed)
            error = torch.linalg.vector_norm(update - wanted)
            metrics["mud/aggregation_error"] = error / torch.linalg.vector_norm(wanted).clamp(min=1e-30)
        return FedMUDState(theta, base, x, fixed, stats), metrics

    def part(self, tensors: tuple[ParameterTensor, ...]) -> ParameterSubset:
        """The columns that are decomposed: all weight tensors but the skipped ones."""
        return ParameterSubset.at(tensors, self._decomposed(tensors))

    def factors(self, tensors: tuple[ParameterTensor, ...]) -> Factors:
        """The factors of these tensors, at the ratio that is left after the search."""
        chosen = [tensors[number] for number in self._decomposed(tensors)]
        total, coded = sum(tensor.size for tensor in tensors), sum(tensor.size for tensor in chosen)
        times = 0
        while True:
            ratio = self.ratio - times * LOWERED_BY
            made = tuple(Product.of(tensor, self.type, self.pattern, ratio, self.view) for tensor in chosen)
            found = Factors(self.pattern, made)
            small = sum(found.trained) + total - coded <= (self.ratio + LOWERED_BY) * total
            if not self.search or small or round(ratio, 9) <= LOWERED_BY:
                return found
            times += 1

    def _decomposed(self, tensors: tuple[ParameterTensor, ...]) -> list[int]:
        """The numbers of the tensors that are decomposed."""
        weights = [number for number, tensor in enumerate(tensors) if tensor.kind == WEIGHT]
        return weights[self.skip_first : max(self.skip_first, len(weights) - self.skip_last)]

    def gain(self, product: Product, variance: float) -> float:
        """g of a tensor whose fixed numbers have this variance."""
        return product.width * variance * (2 if self.pattern == "fab+cfd" else 1)

    def variance(self, product: Product) -> float:
        """v, the variance of a tensor's fixed numbers."""
        if self.distribution == "auto":
            return 1 / self.gain(product, 1.0)
        return self.magnitude**2 / (3 if self.distribution == "uniform" else 1)

    def _mean_gain(self, factors: Factors) -> float:
        gains = [self.gain(one, self.variance(one)) for one in factors.products]
        return sum(gains) / len(gains)

    def _drawn(self, factors: Factors, like: Tensor, key: Key) -> tuple[Tensor, Tensor]:
        """x [F] and fixed factors [X] after a reset, from `key`: every factor has draws of its own."""
        row = torch.zeros(1, dtype=torch.int64, device=like.device)

        def draw(number: int, size: int, product: Product) -> Tensor:
            own, deviation = key.fold_in(number), math.sqrt(self.variance(product))
            if self.distribution == "normal":
                return own.normal(row, size)[0] * deviation
            return (own.uniform(row, size)[0] * 2 - 1) * (deviation * math.sqrt(3))

        if self.pattern == "ab":
            pieces = []
            for number, product in enumerate(factors.products):
                pieces += [draw(number, math.prod(product.left), product), like.new_zeros(math.prod(product.right))]
            return torch.cat(pieces), like.new_zeros(0)
        each = len(factors.fixed) // len(factors.products)
        fixed = [draw(number, size, factors.products[number // each]) for number, size in enumerate(factors.fixed)]
        return like.new_zeros(sum(factors.trained)), torch.cat(fixed)

    def _train(
        self, start: Tensor, base: Tensor, fixed: Tensor, stats: Tensor, factors: Factors, cohort: Cohort, ctx: Context
    ) -> tuple[LocalResult, Tensor]:
        """Factors and dense parameters [M, F + E] as `value`, from start [F + E]; and the mean statistics [C]."""
        part, num = self.part(ctx.clients.tensors), sum(factors.trained)

        def train(data: LocalData, rows: Tensor, stats: Tensor) -> LocalResult:
            def gradient(rows: Tensor, batch: Batch, reads: Reads) -> Gradient:
                base, fixed = reads.shared
                x, dense = rows.split((num, rows.shape[1] - num), 1)
                whole = rows.new_zeros(len(rows), part.dim)
                theta = part.put(part.rest.put(whole, dense), base + factors.fold(x, fixed))
                plain = data.gradient(theta, batch, reads.step)
                own = factors.pull_back(part.take(plain.grad), x, fixed)
                return Gradient(torch.cat((own, part.rest.take(plain.grad)), 1), plain.loss, plain.stats)

            hook = Hook(gradient, ("fedmud", factors, part), (), (base, fixed), ctx.key)
            return self.client.run(data, rows, stats, ctx.progress, hook)

        return train_cohort(train, start, stats, cohort, ctx)
