"""BiCompFL-PR: every client shares randomness with the server alone, and holds a model of its own.

M. Egger et al., "BiCompFL", 2025 (arXiv:2502.00206), algorithm 2. Client i trains masks from its theta^_i, which the
server mirrors, and sends its posterior by minimal random coding against it; the server's theta is the mean of what it
decodes, and goes back to each client as n_DL samples against theta^_i. (The paper's line by which the server encodes
the uplink is a slip: the client holds the posterior.)

`split_downlink` (PR-Fixed-SplitDL): each client gets one of n disjoint parts of the blocks, another in every round
(compressor/mrc/split.py). What it does with the other blocks the paper does not say (`rest`: rest.py). `optimise_prior`
(OP): the uplink's prior is the mixture of theta^_i and the client's previous decoded posterior that is nearest to the
new one (compressor/mrc/mixing.py); its 8 bits are counted. With both, entries of which nothing is known yet keep
theta_0 as prior, and the others are mixed.

A client that does not take part keeps its estimate, at both ends.

Shape legend: M clients of the cohort, N clients, D parameters, d of them masked, C running statistics.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedcomp.algorithm.bicompfl.rest import Rest
from fedcomp.algorithm.contract import Context, Metrics, Models, Setup
from fedcomp.algorithm.masks.coded import CodedMasks, MaskEstimate, part_of
from fedcomp.algorithm.masks.training import masked_models
from fedcomp.compressor.mrc import MRC
from fedcomp.compressor.mrc.candidates import DOWNLINK
from fedcomp.compressor.mrc.diagnostics import polarisation
from fedcomp.compressor.mrc.mixing import STEPS, Mixture, message, received
from fedcomp.compressor.mrc.split import SplitMRC, groups, rotated
from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import put_rows, take_rows
from fedcomp.random.keys import Key


@dataclass(frozen=True)
class BiCompFLPRState:
    """What the server holds, and each client of its own row.

    Attributes:
        weights: [D] frozen weights. theta0: [D] first probabilities, 1 for what is not masked. stats: [C].
        codes: [N, D] counts that theta^_i is made of (masks/coded.py); one byte each for up to 254 samples.
        before: [N, D] counts of each client's last decoded posterior, [N, 0] if no prior is mixed.
        heard: [N] bool, whether there is one.
        theta: [D] the server's probabilities. mean: [D] mean of the clients' estimates.
    """

    weights: Tensor
    theta0: Tensor
    stats: Tensor
    codes: Tensor
    before: Tensor
    heard: Tensor
    theta: Tensor
    mean: Tensor


@dataclass(frozen=True, kw_only=True)
class BiCompFLPR(Rest, CodedMasks):
    """Masks coded with private randomness; for the blocks that a client is not sent see `Rest`."""

    split_downlink: bool = False
    optimise_prior: bool = False

    normalises_weights = True

    def estimate(self, num_clients: int) -> MaskEstimate:
        """How theta^_i is counted."""
        return MaskEstimate(self.resolution(self.samples_down(num_clients)), self.bits, self.clamp, self.form)

    @property
    def codec(self) -> MRC:
        """The uplink's code; each client has candidates of its own."""
        return replace(super().codec, candidates="per_client")

    def mixture(self, num_clients: int) -> Mixture:
        """The uplink's prior."""
        return Mixture(self.estimate(num_clients).num, self.n_ul, self.bits, self.clamp, self.form)

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> BiCompFLPRState:
        """Frozen weights and theta_0, which follow from the run's seed. Raises ValueError: nothing to mask."""
        num, down = setup.num_clients, self.samples_down(setup.num_clients)
        if self.rest == "qhat" and down % self.n_ul:
            raise ValueError(
                f"algorithm.rest=qhat needs n_dl to be a multiple of n_ul, so that both are counts of one kind: "
                f"n_dl is {down}, n_ul {self.n_ul}"
            )
        size = part_of(setup.tensors).size
        num_blocks = -(-size // self.block)
        if self.split_downlink and num_blocks < num:
            raise ValueError(
                f"algorithm.split_downlink needs a block for each of {num} clients: {size} parameters make "
                f"{num_blocks} of algorithm.block={self.block}; take smaller blocks or fewer clients"
            )
        weights, theta0 = self.first(theta, setup, "bicompfl_pr")
        estimate = self.estimate(num)
        codes = estimate.first(theta0.expand(num, -1))
        before = codes.new_zeros((num, theta.shape[0] if self.optimise_prior else 0))
        heard = torch.zeros(num, dtype=torch.bool, device=theta.device)
        return BiCompFLPRState(weights, theta0, stats, codes, before, heard, theta0, theta0)

    def round(self, state: BiCompFLPRState, cohort: Cohort, ctx: Context) -> tuple[BiCompFLPRState, Metrics]:
        """One round of algorithm 2.

        Metrics of the code as in `diagnosed`; `mask/polarisation` of theta; `mask/spread`, the variance of theta^_i.
        """
        part, estimate = part_of(ctx.clients.tensors), self.estimate(ctx.clients.num_clients)
        own, theta0 = take_rows(state.codes, cohort), part.take(state.theta0)
        codes = part.take(own)
        guess, prior = estimate.probability(own, state.theta0), estimate.thresholds(codes, theta0)
        stats = ctx.send_stats(state.stats, cohort)
        local, stats = self.training.train_masks(state.weights, guess, stats, part, cohort, ctx)
        q = part.take(local.value)

        codec, parallel_map = self.codec, ctx.clients.parallel_map
        mixed, extra = self._mixed(q, codes, prior, state, cohort, ctx)
        common = self.common("update", cohort, mixed, ctx)
        payload = ctx.link.up(codec.encode(q, common, ctx.sender_key("update"), parallel_map))
        counts = codec.counts(payload, common, parallel_map)
        theta = self.mean(counts.sum(0), cohort.size)
        metrics = {"train/loss": local.loss, **extra, **self.diagnosed("up", q, common, codec, ctx)}

        got, inside, more = self._send_mean(theta, prior, cohort, ctx)
        new = (got * (estimate.num // self.samples_down(ctx.clients.num_clients))).to(codes.dtype)
        if inside is not None:
            new = torch.where(inside, new, self.codes(codes, counts, self.n_ul, theta0, estimate, ctx.round))
        rows = part.put(own, new)
        after = put_rows(state.codes, cohort, rows)
        mean = estimate.probability(after, state.theta0).mean(0)
        before, heard = state.before, state.heard
        if self.optimise_prior:
            before = put_rows(before, cohort, part.put(torch.zeros_like(own), counts.to(own.dtype)))
            heard = put_rows(heard, cohort, torch.ones_like(heard[: cohort.size]))
        guesses = estimate.probability(new, theta0)
        variance = (guesses - guesses.mean(0)).square().mean()
        metrics |= {**more, "mask/polarisation": polarisation(theta), "mask/spread": variance}
        full = part.put(state.theta, theta)
        return BiCompFLPRState(state.weights, state.theta0, stats, after, before, heard, full, mean), metrics

    def evaluation_models(self, state: BiCompFLPRState, key: Key) -> dict[str, Models]:
        """The server's masks, and those of the clients' mean estimate (`clients`)."""
        models = masked_models(state.weights, state.theta, state.stats, key, self.test, self.test_samples)
        theirs = masked_models(state.weights, state.mean, state.stats, key, self.test, self.test_samples)
        return models | {"clients": theirs["test"]}

    def _mixed(
        self, q: Tensor, codes: Tensor, prior: Tensor, state: BiCompFLPRState, cohort: Cohort, ctx: Context
    ) -> tuple[Tensor, Metrics]:
        """The uplink's priors [M, d] at both ends, after the clients have sent their choices; `mrc/lambda` [M]."""
        if not self.optimise_prior:
            return prior, {}
        mixture, estimate = self.mixture(ctx.clients.num_clients), self.estimate(ctx.clients.num_clients)
        known = estimate.known(codes)
        mixes = known & take_rows(state.heard, cohort)[:, None]
        before = part_of(ctx.clients.tensors).take(take_rows(state.before, cohort))
        first, second = torch.where(known, codes, 0), before
        chosen = received(ctx.link.up(message(mixture.best(q, first, second, mixes))))
        mixed = mixture.thresholds(chosen, first, second)
        return torch.where(mixes, mixed, prior), {"mrc/lambda": chosen.to(torch.float32) / STEPS}

    def _send_mean(
        self, theta: Tensor, prior: Tensor, cohort: Cohort, ctx: Context
    ) -> tuple[Tensor, Tensor | None, Metrics]:
        """For theta [d]: counts [M, d] that the clients decode, where they do (None: everywhere), and metrics."""
        num, parallel_map = ctx.clients.num_clients, ctx.clients.parallel_map
        down = replace(self.codec, repetitions=self.samples_down(num), domain=DOWNLINK)
        common = self.common("mean", cohort, prior, ctx)
        rows, sender_key = theta.expand(cohort.size, -1), ctx.sender_key("mean")
        inside = None
        if not self.split_downlink:
            payload = ctx.link.unicast(down.encode(rows, common, sender_key, parallel_map))
            counts = down.counts(payload, common, parallel_map)
        else:
            num_blocks = down.cut(len(theta), theta.device).num
            every = groups(num_blocks, num)
            split = SplitMRC(down, tuple(every[group] for group in rotated(cohort.clients, ctx.round, num)))
            counts, inside = split.counts(ctx.link.unicast(split.encode(rows, common, sender_key)), common)
        return counts, inside, self.diagnosed("down", rows, common, down, ctx)
