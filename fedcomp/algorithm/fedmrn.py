"""FedMRN: clients learn a mask over random noise, so that an update is one bit an entry and a seed.

S. Li et al., "Masked random noise for communication-efficient federated learning", ACM MM 2024 (arXiv:2408.03220),
algorithm 1; official code `Leopold1423/fedmrn-mm24`. FedMRN has masks in {0, 1}, FedMRNS in {-1, 1} (`mask`).

A client starts from u = 0 and draws noise n from its seed. Local step tau of S works at w + u^: with probability
tau / S an entry of u^ is its masked noise (a fresh mask each time), else the clipped clip(u / n, low, 1) n (progressive
masking); u then takes the local solver's step with the gradient at w + u^, straight through mask and clipping. After
the last step one more mask is drawn and sent. The last step masks every entry, since p = 1.

Where paper and code differ, this is the code: gaussian noise has the standard deviation alpha, BatchNorm's parameters
are neither masked nor part of "1 bit per parameter" (here: sent dense and counted, or masked too by `mask_batchnorm`).
Unlike the code: clients count by their samples, not by their mini-batches; one seed of 64 bits a client and round
instead of one of 1,001 a layer; noise really comes from that seed alone. Corrected: the paper's proposition 1 squares
the probability of the progressive mask; it shrinks the error's factor q by sqrt((S + 1) / (2 S)), not
sqrt(sum tau^2 / S^3), and "unbiased" holds only as compressor/masked_noise.py says.

Shape legend: M clients of the cohort, A of them at work, D parameters, d of them masked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup
from fedcomp.algorithm.downlinks.downlink import CompressedDownlink
from fedcomp.algorithm.masks.training import bernoulli
from fedcomp.algorithm.models import ModelState
from fedcomp.algorithm.updates.local_training import training_metrics
from fedcomp.algorithm.updates.metrics import servers_memory
from fedcomp.client import Batch, Gradient, Hook, LocalData, LocalResult, LocalSolver, Reads
from fedcomp.compressor import Compressor, Memory
from fedcomp.compressor.masked_noise import Alpha, Mask, MaskedNoise, Noise
from fedcomp.compressor.seed import SeedCost
from fedcomp.core.cohort import Cohort
from fedcomp.core.parameter_layout import EMBEDDING, ParameterSubset, ParameterTensor, is_normalisation
from fedcomp.core.ranges import Within
from fedcomp.random.keys import Key
from fedcomp.server import ServerOptimizer, Slots

MOST_SATURATED = 0.25
"""Share of clipped entries above which a run says that the noise bounds what a round can learn."""


@dataclass(frozen=True)
class FedMRNState(ModelState):
    """What lives from round to round.

    Attributes:
        downlink: memory of the downlink's compressor. optimizer: memories of the server optimizer.
    """

    downlink: Memory
    optimizer: Slots


@dataclass(frozen=True)
class FedMRN(Algorithm):
    """Local training of masks over noise, weighted mean of the masked noises, server step.

    Attributes:
        client: trains u. mask, noise, alpha, seed_cost: see compressor/masked_noise.py.
        sm: false: the noise that points the same way as u (nothing in training where u = 0; of signed masks the bit
            that is sent has no such value: it says -1 there).
        ramp, power: of progressive masking (pm), p = (tau / (ramp S)) ** power.
    """

    client: LocalSolver
    server: ServerOptimizer
    downlink: Compressor
    mask: Mask = "binary"
    noise: Noise = "uniform"
    alpha: Alpha = None
    sm: bool = True
    pm: bool = True
    ramp: Annotated[
        float,
        Within(
            "(0, 1]",
            "the share of local steps after which every entry is masked, so that the last step trains what is sent",
        ),
    ] = 1.0
    power: Annotated[float, Within("(0, inf)", "1 is linear")] = 1.0
    seed_cost: SeedCost = "sent"
    mask_batchnorm: bool = False
    weights: str = "samples"

    when_slow = "a round changes a weight by its noise at most: a larger algorithm.alpha, or more rounds"

    def remarks(self, last: Mapping[str, float]) -> Sequence[str]:
        """That the noise is small for what clients learn in a round."""
        share = last.get("mask/saturated", 0.0)
        if share <= MOST_SATURATED:
            return ()
        return [
            f"{100 * share:.0f} % of the entries end at their noise, the most that a round can change them by "
            "(mask/saturated): a larger algorithm.alpha lets clients go further"
        ]

    @property
    def codec(self) -> MaskedNoise:
        """The noise, and the message."""
        return MaskedNoise(self.mask, self.noise, self.alpha, self.sm, self.seed_cost)

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> FedMRNState:
        """The first model. Raises ValueError: nothing to mask."""
        if not self._masked(setup.tensors).size:
            raise ValueError(
                "algorithm=fedmrn masks convolution and linear weights and biases, and this model has none: choose "
                "another model, or algorithm.mask_batchnorm=true"
            )
        return FedMRNState(theta, stats, self.downlink.init(1, theta), self.server.init(theta))

    def round(self, state: FedMRNState, cohort: Cohort, ctx: Context) -> tuple[FedMRNState, Metrics]:
        """One round of algorithm 1; `mask/saturated` [M] is the share of entries with |u| >= |n|, which are clipped."""
        down = CompressedDownlink.of(self.downlink)
        start, stats, downlink = down.send_model(state.theta, state.stats, state.downlink, cohort, ctx)

        part = self._masked(ctx.clients.tensors)
        common, sender_key = replace(ctx.common("update", cohort), layers=part.layers), ctx.sender_key("update")
        local, saturated = self._train(start, stats, part, cohort, ctx)
        payload = ctx.link.up(self.codec.encode(part.take(local.value), common, sender_key))
        mean = self.codec.weighted_sum(payload, common, cohort.weight)
        rest, first = part.rest, part.rest.take(start)
        dense = ctx.gather_dense("normalisation", first + rest.take(local.value), cohort, paper_bits=0)
        mean = part.put(rest.put(start, dense - first), mean)
        stats = ctx.gather_stats(local.stats, cohort)

        step, optimizer = self.server.step(mean, state.optimizer, state.theta)
        theta, stats, downlink = down.send_change(state.theta, state.theta + step, stats, downlink, cohort, ctx)
        metrics = {**training_metrics(local), "mask/saturated": saturated, **servers_memory(downlink, step)}
        return FedMRNState(theta, stats, downlink, optimizer), metrics

    def mask_probability(self, step: int | Tensor, num_steps: Tensor) -> Tensor:
        """[A] probability that an entry is masked in local step `step` (0 is the first) of `num_steps` [A]."""
        return ((step + 1) / (self.ramp * num_steps.to(torch.float32))).clamp(max=1.0) ** self.power

    def perturbed(self, u: Tensor, noise: Tensor, draws: Tensor, share: Tensor | None) -> Tensor:
        """u^ [A, d] of a training step: masked noise where draws [A, d] < share [A, 1], clipped u elsewhere.

        One uniform draw does for both: given that it is below p, draw / p is uniform again, so that
        draw < p P(m = 1) has the probability of the mask. `share` None: every entry is masked.
        """
        ratio = u / noise
        clipped = None if share is None else ratio.clamp(self.codec.low, 1.0)
        if self.sm:
            chance = self.codec.mask_probability(ratio).clamp_(max=1.0)
            bits = bernoulli(chance if share is None else chance.mul_(share), draws)
            value = bits if self.mask == "binary" else bits.mul_(2.0).sub_(1.0)
        else:
            value = torch.sign(ratio).clamp_(min=self.codec.low)
        if share is not None and clipped is not None:
            masked = bernoulli(share, draws)
            value = value.mul_(masked).add_(clipped.mul_(1.0 - masked))
        return value.mul_(noise)

    def _masked(self, tensors: tuple[ParameterTensor, ...]) -> ParameterSubset:
        """Everything but embeddings, which the official LSTM program sends dense, and normalisation layers."""

        def belongs(tensor: ParameterTensor) -> bool:
            return tensor.kind != EMBEDDING and (self.mask_batchnorm or not is_normalisation(tensor))

        return ParameterSubset.of(tensors, belongs)

    def _train(
        self, start: Tensor, stats: Tensor, part: ParameterSubset, cohort: Cohort, ctx: Context
    ) -> tuple[LocalResult, Tensor]:
        """The clients' u [M, D] as `value`, and the share of masked entries [M] that the noise clips."""
        common, sender_key = replace(ctx.common("update", cohort), layers=part.layers), ctx.sender_key("update")
        key, seeds = self.codec.source(common, sender_key)

        def train(data: LocalData, zero: Tensor, stats: Tensor, seeds: Tensor) -> tuple[LocalResult, Tensor]:
            noise = self.codec.draw(key, seeds, part.size)
            hook = self._hook(data, start, noise, part, sender_key.fold_in("training"))
            local = self.client.run(data, zero, stats, ctx.progress, hook)
            return local, (part.take(local.value).abs() >= noise.abs()).to(torch.float32).mean(1)

        zero, rows = torch.zeros_like(start).expand(cohort.size, -1), stats.expand(cohort.size, -1)
        return ctx.clients.map_clients(train, cohort, zero, rows, seeds)

    def _hook(self, data: LocalData, start: Tensor, noise: Tensor, part: ParameterSubset, key: Key) -> Hook:
        def gradient(u: Tensor, batch: Batch, reads: Reads) -> Gradient:
            (ids, num_steps, noise), (start,) = reads.rows, reads.shared
            rows = batch.num_rows
            draws = reads.draws.uniform(ids[:rows], part.size)
            share = self.mask_probability(reads.step, num_steps[:rows])[:, None] if self.pm else None
            moved = part.put(u, self.perturbed(part.take(u), noise[:rows], draws, share))
            return data.gradient(moved.add_(start), batch, reads.step)

        name = self.codec, self.pm, self.ramp, self.power, part
        return Hook(gradient, name, (data.ids, data.num_steps(self.client.batching), noise), (start,), key)
