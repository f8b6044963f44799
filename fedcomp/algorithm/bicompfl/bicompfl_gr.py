"""BiCompFL-GR: with randomness that all share, the server passes on what the clients sent.

M. Egger et al., "BiCompFL", 2025 (arXiv:2502.00206), algorithm 1; `reconstruct`, GR-Reconst of section 4. In a round
all clients train masks from the common theta^ (masks/training.py), send their posteriors by minimal random coding
against theta^ as prior, and get the indices of all others, so that everybody makes the same next theta^, the mean of
all samples. With `reconstruct` the server codes that mean once more instead, n_DL samples against theta^, for all.

Blocks: `fixed`, or following the divergence: `adaptive` (boundaries that clients propose) and `adaptive_avg` (one
size), whose messages are charged in the rounds in which they are sent (compressor/mrc/allocation/). In every round one
bit tells the clients whether to propose new blocks, which the paper does not count.

Corrected: a relay by broadcast has to carry all M streams, which the paper counts as M - 1; XORs of neighbours really
need M - 1 (`relay: xor`). Ragged last blocks are counted. Needs every client in every round, as in the paper.

Shape legend: M clients, D parameters, d of them masked, C running statistics.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context, Metrics, Models, Setup
from fedcomp.algorithm.masks.coded import CodedMasks, MaskEstimate, blocks_at, part_of, starts
from fedcomp.algorithm.masks.training import masked_models
from fedcomp.compressor.mrc import MRC
from fedcomp.compressor.mrc.allocation import Adaptive, AdaptiveAverage, Changing, Fixed, decided, decision
from fedcomp.compressor.mrc.allocation.contract import Capacity
from fedcomp.compressor.mrc.blocks import Blocks
from fedcomp.compressor.mrc.candidates import DOWNLINK, CandidateSource
from fedcomp.compressor.mrc.diagnostics import kl_divergence, polarisation
from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key

Relay = Literal["plain", "xor"]
"""What a relay by broadcast costs: M messages, or the XORs of neighbours, M - 1."""


@dataclass(frozen=True)
class BiCompFLGRState:
    """What everybody holds.

    Attributes:
        weights: [D] frozen weights. theta0: [D] first probabilities, 1 for what is not masked. stats: [C].
        codes: [D] counts that theta^ is made of (masks/coded.py). estimate: [D] theta^ itself.
        theta: [D] the server's probabilities; with `reconstruct` not theta^.
        starts: [d] bool where blocks begin, [0] if they never change. wanted: [1] bool, new blocks were asked for.
    """

    weights: Tensor
    theta0: Tensor
    stats: Tensor
    codes: Tensor
    estimate: Tensor
    theta: Tensor
    starts: Tensor
    wanted: Tensor


@dataclass(frozen=True, kw_only=True)
class BiCompFLGR(CodedMasks):
    """Masks coded with global randomness.

    Attributes:
        candidates: shared by all clients, as in the text, or per_client: as many bits, n times the random numbers, and
            less variance where clients would choose alike (compressor/mrc/codec.py).
        allocation to capacity: see compressor/mrc/allocation/.
    """

    candidates: CandidateSource = "shared"
    reconstruct: bool = False
    relay: Relay = "plain"
    allocation: Literal["fixed", "adaptive", "adaptive_avg"] = "fixed"
    longest: int = 4096
    smallest: int = 16
    phi: float = 3.0
    two_sided: bool | None = None
    capacity: Capacity = "nats"

    full_participation = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.strategy  # it checks its own options

    @property
    def strategy(self) -> Fixed:
        """How vectors are cut into blocks."""
        if self.allocation == "adaptive":
            return Adaptive(self.block, self.longest, self.phi, bool(self.two_sided), capacity=self.capacity)
        if self.allocation == "adaptive_avg":
            return AdaptiveAverage(
                size=self.block,
                smallest=self.smallest,
                longest=self.longest,
                phi=self.phi,
                two_sided=self.two_sided is not False,
                capacity=self.capacity,
            )
        return Fixed(self.block)

    def estimate(self, num_clients: int) -> MaskEstimate:
        """How theta^ is counted."""
        num = self.samples_down(num_clients) if self.reconstruct else num_clients * self.n_ul
        return MaskEstimate(num, self.bits, self.clamp, self.form)

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> BiCompFLGRState:
        """Frozen weights and theta_0, which follow from the run's seed. Raises ValueError: nothing to mask."""
        weights, theta0 = self.first(theta, setup, "bicompfl_gr")
        part, marks = part_of(setup.tensors), torch.zeros(0, dtype=torch.bool, device=theta.device)
        if isinstance(self.strategy, Changing):
            marks = torch.zeros(part.size, dtype=torch.bool, device=theta.device)
            marks[:: self.block] = True
        codes, wanted = self.estimate(setup.num_clients).first(theta), torch.zeros_like(marks[:1])
        return BiCompFLGRState(weights, theta0, stats, codes, theta0, theta0, marks, wanted)

    def round(self, state: BiCompFLGRState, cohort: Cohort, ctx: Context) -> tuple[BiCompFLGRState, Metrics]:
        """One round of algorithm 1; metrics of the code as in `diagnosed`, and `mask/polarisation` of theta."""
        part, estimate = part_of(ctx.clients.tensors), self.estimate(cohort.size)
        prior = estimate.thresholds(part.take(state.codes), part.take(state.theta0))[None]
        stats = ctx.send_stats(state.stats, cohort)
        local, stats = self.training.train_masks(state.weights, state.estimate[None], stats, part, cohort, ctx)
        q = part.take(local.value)

        blocks, wanted, marks = self._blocks(state, q, prior, cohort, ctx)
        codec = replace(self.codec, candidates=self.candidates).within(blocks)
        common = self.common("update", cohort, prior, ctx)
        payload = ctx.link.up(codec.encode(q, common, ctx.sender_key("update"), ctx.clients.parallel_map))
        metrics = {"train/loss": local.loss, **self.diagnosed("up", q, common, codec, ctx)}

        if self.reconstruct:
            theta = self.mean(codec.total(payload, common, ctx.clients.parallel_map), cohort.size)
            held, more = self._send_mean(theta, prior, codec, cohort, ctx)
            metrics |= more
        else:
            relayed = ctx.link.relay(payload, self.relay == "xor")
            held = codec.total(relayed, common, ctx.clients.parallel_map)
            theta = estimate.probability(held, part.take(state.theta0))

        codes = part.put(state.codes, held.to(estimate.dtype))
        guess = part.put(state.estimate, estimate.probability(held, part.take(state.theta0)))
        metrics["mask/polarisation"] = polarisation(theta)
        after = BiCompFLGRState(
            state.weights, state.theta0, stats, codes, guess, part.put(state.theta, theta), marks, wanted
        )
        return after, metrics

    def evaluation_models(self, state: BiCompFLGRState, key: Key) -> dict[str, Models]:
        """The server's masks; with `reconstruct` also the clients' (`clients`)."""
        models = masked_models(state.weights, state.theta, state.stats, key, self.test, self.test_samples)
        if self.reconstruct:
            theirs = masked_models(state.weights, state.estimate, state.stats, key, self.test, self.test_samples)
            models["clients"] = theirs["test"]
        return models

    def _blocks(
        self, state: BiCompFLGRState, q: Tensor, prior: Tensor, cohort: Cohort, ctx: Context
    ) -> tuple[Blocks, Tensor, Tensor]:
        """Agree on blocks: (the round's blocks, `wanted` [1] for the next round, `starts` [d] or [0])."""
        strategy, size = self.strategy, q.shape[1]
        if not isinstance(strategy, Changing):
            return strategy.first(size, q.device), state.wanted, state.starts
        kl = kl_divergence(q, prior, self.bits, self.clamp)
        blocks, marks = blocks_at(state.starts), state.starts
        if bool(state.wanted[0]):
            merged = strategy.merge(ctx.link.up(strategy.propose(kl, self.n_is)))
            blocks = strategy.read(ctx.link.broadcast(merged, cohort), size, q.device)
            marks = starts(blocks)
        wanted = strategy.wanted(ctx.link.up(strategy.request(kl, blocks, self.n_is)))
        again = ctx.link.broadcast(decision(wanted, q.device), cohort)
        return blocks, decided(again), marks

    def _send_mean(
        self, theta: Tensor, prior: Tensor, codec: MRC, cohort: Cohort, ctx: Context
    ) -> tuple[Tensor, Metrics]:
        """Counts [d] of the samples of theta that all clients decode."""
        down = replace(codec, repetitions=self.samples_down(cohort.size), candidates="shared", domain=DOWNLINK)
        common = self.common("mean", ctx.server(theta), prior, ctx)
        payload = ctx.link.broadcast(
            down.encode(theta[None], common, ctx.sender_key("mean"), ctx.clients.parallel_map), cohort
        )
        found = self.diagnosed("down", theta[None], common, down, ctx)  # of the server's one message
        counts = down.counts(payload, common, ctx.clients.parallel_map)[0]
        return counts, {name: value[0] for name, value in found.items()}
