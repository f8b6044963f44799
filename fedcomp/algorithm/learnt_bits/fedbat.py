"""FedBAT: clients learn an update that is binarised in training, with a learnt step size of each tensor.

S. Li et al., "FedBAT: communication-efficient federated learning via learnable binarization", ICML 2024
(arXiv:2408.03215); official code `Leopold1423/fedbat-icml24`. A client starts from m = 0. For the first part phi of its
S steps it takes plain steps on m at w + m; then alpha_l = mean |m_l| of each tensor l, and every further step is at
w + S(m, alpha) with a fresh draw (binarised.py), and trains m and alpha. It sends one more draw, as signs, and alpha.
Server: w_l <- w_l + sum_k p_k alpha_kl (2 b_kl - 1). m and alpha begin anew in every round.

The code has alpha = alpha_0 exp(rho a) with a trained from 0 at the rate eta of m. With lambda = ln alpha that is
lambda <- lambda - eta rho^2 alpha sum g c from ln alpha_0: one column a tensor, and rho^2 is a factor of its rate.

Decided here: the first step is always plain (the code's phi = 0, and one of a client with few steps, leaves alpha at
its lower bound for ever); a client of one step sends S(m, mean |m|); a tensor in which m = 0 sends alpha = 0. Clients
count by their samples, not by their mini-batches. BatchNorm's scale, shift and statistics are sent dense and counted.

Departs from what one may expect: entries beyond alpha have no gradient (alpha_0 = mean |m| leaves 42 % of a Gaussian m
there), and c is the derivative of a linear loss only.

Shape legend: M clients of the cohort, A of them at work, D parameters, d of them binarised in L tensors.
Trained rows are [M, D + 2 L]: m, with changes of the dense columns among it; lambda; ln alpha_0.
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup
from fedcomp.algorithm.downlinks.downlink import CompressedDownlink
from fedcomp.algorithm.learnt_bits.binarised import StepSizes, binarise, probability, slopes
from fedcomp.algorithm.models import ModelState
from fedcomp.algorithm.updates.local_training import training_metrics
from fedcomp.algorithm.updates.metrics import servers_memory
from fedcomp.client import Batch, Gradient, Hook, LocalData, LocalResult, LocalSolver, Reads
from fedcomp.client.sgd import Sgd
from fedcomp.compressor import Compressor, Memory
from fedcomp.core.cohort import Cohort
from fedcomp.core.parameter_layout import BIAS, EMBEDDING, NORMALISATION, ParameterSubset, ParameterTensor
from fedcomp.core.ranges import Within
from fedcomp.core.validate import as_typed, is_number
from fedcomp.random.keys import Key
from fedcomp.server import ServerOptimizer, Slots
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Float, Unsigned


@dataclass(frozen=True)
class FedBATState(ModelState):
    """What lives from round to round.

    Attributes:
        downlink: memory of the downlink's compressor. optimizer: memories of the server optimizer.
    """

    downlink: Memory
    optimizer: Slots


@dataclass(frozen=True)
class FedBAT(Algorithm):
    """Local training of a binarised update, weighted mean of what is sent, server step.

    Attributes:
        client: plain SGD, which trains m and, at rho^2 times its rate, lambda.
        phi: above 0, below 1; with a number for alpha0 also 0. rho: factor of alpha's exponent.
    """

    needs: ClassVar[dict[str, type]] = {"client": Sgd}

    client: LocalSolver
    server: ServerOptimizer
    downlink: Compressor
    phi: float = 0.5
    rho: Annotated[float, Within("[0, inf)")] = 6.0
    alpha_min: Annotated[float, Within("(0, inf)", "the smallest step size of an entry")] = 5e-4
    alpha_max: Annotated[float, Within("(0, inf)", "the largest step size of an entry")] = 5e-2
    alpha0: str | float = "mean"
    biases: Literal["binarised", "dense"] = "binarised"
    weights: str = "samples"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha_min > self.alpha_max:
            raise ValueError(f"algorithm.alpha_min={self.alpha_min} must be at most alpha_max={self.alpha_max}")
        if self.alpha0 != "mean" and not (is_number(self.alpha0) and 0 < float(self.alpha0) < float("inf")):
            raise ValueError(f"algorithm.alpha0={as_typed(self.alpha0)} must be mean, or a positive number")
        if not is_number(self.phi) or not 0 <= self.phi < 1 or (self.phi == 0 and self.alpha0 == "mean"):
            raise ValueError(
                f"algorithm.phi={self.phi} must be in (0, 1), the share of steps before m is binarised (0 only with a "
                "number for algorithm.alpha0): without them mean |m| is 0, with nothing else it is never binarised"
            )
        if isinstance(self.client, Sgd) and (self.client.plain_sgd_decay != 0 or self.client.proximal):
            raise ValueError(
                "algorithm=fedbat needs plain SGD (client.momentum=0, client.weight_decay=0, client.proximal=0, "
                "client.clip_norm=null): its rows hold m and ln alpha side by side, which these options would mix or "
                "pull to 0"
            )

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> FedBATState:
        """The first model. Raises ValueError: nothing to binarise."""
        if not self._coded(setup.tensors).size:
            raise ValueError("algorithm=fedbat binarises updates of weights, and this model has none: choose another")
        return FedBATState(theta, stats, self.downlink.init(1, theta), self.server.init(theta))

    def round(self, state: FedBATState, cohort: Cohort, ctx: Context) -> tuple[FedBATState, Metrics]:
        """One round.

        Metrics, one value a client: `bat/alpha` mean over tensors; `bat/alpha_growth` alpha / alpha_0; `bat/at_bound`
        share of tensors whose alpha is at a bound; `bat/clipped` share of entries beyond alpha; `bat/error`
        ||S(m, alpha) - m||^2 / ||m||^2, 0 where m is 0.
        """
        down = CompressedDownlink.of(self.downlink)
        start, stats, downlink = down.send_model(state.theta, state.stats, state.downlink, cohort, ctx)

        part = self._coded(ctx.clients.tensors)
        local, log, first = self._train(start, stats, part, cohort, ctx)
        sizes, m = self._sizes(part), part.take(local.value)
        alpha = sizes.alpha(log)
        signs = ctx.sender_key("signs").uniform(cohort.ids, part.size) < probability(m, sizes.spread(alpha))
        fields = {"signs": Field(signs.to(torch.uint8), Unsigned(1)), "alpha": Field(alpha, Float())}
        bits, scales = ctx.link.up(Payload(fields)).expect(signs=part.size, alpha=len(part.layers))
        rest, kept = part.rest, part.rest.take(start)
        dense = ctx.gather_dense("normalisation", kept + rest.take(local.value), cohort, paper_bits=0)
        stats = ctx.gather_stats(local.stats, cohort)

        weighted = (cohort.weight[:, None] * scales).t()
        each = zip(weighted, self.decoded(bits, torch.ones_like(scales), sizes).split(part.layers, 1), strict=True)
        mean = torch.cat([weight @ signs for weight, signs in each])
        mean = part.put(rest.put(start, dense - kept), mean)
        step, optimizer = self.server.step(mean, state.optimizer, state.theta)
        theta, stats, downlink = down.send_change(state.theta, state.theta + step, stats, downlink, cohort, ctx)
        error, size = self.decoded(signs, alpha, sizes) - m, m.square().sum(1)
        metrics = {
            **training_metrics(local),
            "bat/alpha": alpha.mean(1),
            "bat/alpha_growth": (log - first).exp().mean(1),
            "bat/at_bound": 1 - sizes.is_free(log).to(torch.float32).mean(1),
            "bat/clipped": (m.abs() > sizes.spread(alpha)).to(torch.float32).mean(1),
            "bat/error": torch.where(size > 0, error.square().sum(1) / size.clamp(min=torch.finfo(m.dtype).tiny), 0.0),
            **servers_memory(downlink, step),
        }
        return FedBATState(theta, stats, downlink, optimizer), metrics

    def decoded(self, bits: Tensor, alpha: Tensor, sizes: StepSizes) -> Tensor:
        """[M, d] alpha (2 b - 1)."""
        return bits.to(alpha.dtype).mul_(2.0).sub_(1.0) * sizes.spread(alpha)

    def plain_steps(self, num_steps: Tensor) -> Tensor:
        """[A] tau_0 of clients that make num_steps [A]."""
        steps = (self.phi * num_steps.double()).floor().to(torch.int64)
        return steps.clamp(min=1) if self.alpha0 == "mean" else steps

    def _coded(self, tensors: tuple[ParameterTensor, ...]) -> ParameterSubset:
        dense = {NORMALISATION, EMBEDDING, *((BIAS,) if self.biases == "dense" else ())}
        return ParameterSubset.of(tensors, lambda tensor: tensor.kind not in dense)

    def _sizes(self, part: ParameterSubset) -> StepSizes:
        return StepSizes(part.layers, self.alpha_min, self.alpha_max)

    def _train(
        self, start: Tensor, stats: Tensor, part: ParameterSubset, cohort: Cohort, ctx: Context
    ) -> tuple[LocalResult, Tensor, Tensor]:
        """m and the changes of the dense columns [M, D] as `value`; lambda and ln alpha_0, [M, L] each."""
        key, num, dim = ctx.sender_key("training"), len(part.layers), start.shape[0]
        rate = start.new_full((), self.client.learning_rate(ctx.progress))

        def train(data: LocalData, zero: Tensor, stats: Tensor) -> tuple[LocalResult, Tensor, Tensor]:
            local = self.client.run(data, zero, stats, ctx.progress, self._hook(data, start, rate, part, key))
            theta, log, first = local.value.split((dim, num, num), 1)
            steps = data.num_steps(self.client.batching)
            # Such a client has not come to its alpha_0, or, at a rate of 0, has not moved to it.
            none = (steps <= self.plain_steps(steps))[:, None] | (rate == 0)
            own = self._first_log(part.take(theta), self._sizes(part))
            return replace(local, value=theta), torch.where(none, own, log), torch.where(none, own, first)

        zero, rows = start.new_zeros(1, dim + 2 * num).expand(cohort.size, -1), stats.expand(cohort.size, -1)
        return ctx.clients.map_clients(train, cohort, zero, rows)

    def _first_log(self, m: Tensor, sizes: StepSizes) -> Tensor:
        """[A, L] ln alpha_0, within its bounds or far below them."""
        if self.alpha0 != "mean":
            return m.new_full((len(m), len(sizes.sizes)), float(self.alpha0)).log()
        return sizes.mean_log(m)

    def _hook(self, data: LocalData, start: Tensor, rate: Tensor, part: ParameterSubset, key: Key) -> Hook:
        sizes, dim, num = self._sizes(part), start.shape[0], len(part.layers)

        def gradient(rows: Tensor, batch: Batch, reads: Reads) -> Gradient:
            (ids, plain_steps), (start, rate) = reads.rows, reads.shared
            u, held, first = rows.split((dim, num, num), 1)
            m = part.take(u)
            left = plain_steps[: batch.num_rows, None] - reads.step  # 0: this step is the first that is binarised
            still = rate == 0  # as in the last round of a cosine: rows stay, so that each step has m's own alpha_0
            begins, binarises = (left == 0) | still, left <= 0
            log = torch.where(begins, self._first_log(m, sizes), held)
            alpha = sizes.alpha(log)
            wide = sizes.spread(alpha)
            sent = binarise(m, wide, reads.draws.uniform(ids[: batch.num_rows], part.size))
            moved = part.put(u, torch.where(binarises, sent, m))
            plain = data.gradient(moved + start, batch, reads.step)
            g = part.take(plain.grad)
            of_m, of_alpha = slopes(m, wide, sent)
            of_log = self.rho**2 * alpha * sizes.sums(g * of_alpha) * (sizes.is_free(log) & binarises)
            # A step of SGD, theta - rate grad, then ends at ln alpha_0 - rate of_log, and at ln alpha_0.
            length = torch.where(still, 1.0, rate)
            jump = torch.where(begins, held - log, 0.0) / length + of_log
            note = torch.where(begins, first - log, 0.0) / length
            grad = part.put(plain.grad, torch.where(binarises, g * of_m, g))
            return Gradient(torch.cat((grad, jump, note), 1), plain.loss, plain.stats)

        steps = self.plain_steps(data.num_steps(self.client.batching))
        name = "fedbat", self.rho, self.alpha0, sizes, part
        return Hook(gradient, name, (data.ids, steps), (start, rate), key)
