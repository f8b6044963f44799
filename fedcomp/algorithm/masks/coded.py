"""What both of BiCompFL's mask variants share: options, the first state, coded posteriors and estimates, metrics.

M. Egger, R. Bitar, A. Wachter-Zeh, N. Weinberger, D. Gunduz, "BiCompFL: stochastic federated learning with
bi-directional compression", 2025 (arXiv:2502.00206). Where it is silent, defaults are those of its predecessors' public
programs (FedPM and KLMS): theta_0 = sigma(N(0, 1)), weights +-e / sqrt(fan_in), gradients times theta, clamp 0.01.

Shape legend: M clients of the cohort, D parameters, d of them masked.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup
from fedcomp.algorithm.masks.frozen_weights import FrozenWeights, Gain
from fedcomp.algorithm.masks.training import MaskTraining, Ste, TestedMask, masked_part
from fedcomp.client import LocalSolver
from fedcomp.compressor.mrc import MRC
from fedcomp.compressor.mrc.blocks import Blocks, BlockSize
from fedcomp.compressor.mrc.codec import NumCandidates, ThresholdBits
from fedcomp.compressor.mrc.diagnostics import kl_divergence, share_above
from fedcomp.compressor.mrc.thresholds import clamped, from_counts, quantised
from fedcomp.core.cohort import Cohort
from fedcomp.core.parameter_layout import ParameterSubset, ParameterTensor
from fedcomp.core.ranges import Whole
from fedcomp.core.validate import options_of
from fedcomp.wire import SharedKnowledge


@dataclass(frozen=True)
class MaskEstimate:
    """Estimates of a mask's probabilities that two ends hold alike to the bit: counts of samples.

    What minimal random coding decodes is how many of n samples have a one. An estimate is kept as that count, its code,
    and priors are looked up from it, never computed from floats that two devices made. Until the first samples of an
    entry have come, its code is n + 1, and its probability is theta_0, which follows from the run's seed.

    Attributes:
        num: n, samples behind a count.
        bits: of a threshold. clamp, form: how probabilities are kept away from 0 and 1 where they are priors; with the
            form "affine" they are so everywhere.
    """

    num: int
    bits: ThresholdBits = 8
    clamp: float = 0.01
    form: Literal["clip", "affine"] = "clip"

    def first(self, like: Tensor) -> Tensor:
        """Codes of the shape and device of `like` that all mean theta_0."""
        return torch.full(like.shape, self.num + 1, dtype=self.dtype, device=like.device)

    @property
    def dtype(self) -> torch.dtype:
        """The narrowest type of a code."""
        return torch.uint8 if self.num + 1 < 256 else torch.int32

    def known(self, codes: Tensor) -> Tensor:
        """Whether a code is a count."""
        return codes <= self.num

    def probability(self, codes: Tensor, theta0: Tensor) -> Tensor:
        """float32 theta of codes [..., D], with theta0 [D]."""
        share = codes.to(torch.float32) / self.num
        if self.form == "affine":
            share = clamped(share, self.clamp, self.form)
        return torch.where(self.known(codes), share, theta0)

    def thresholds(self, codes: Tensor, theta0: Tensor) -> Tensor:
        """Integer priors of codes [..., D]."""
        looked_up = from_counts(codes.clamp(max=self.num), self.num, self.bits, self.clamp, self.form)
        first = quantised(theta0, self.bits, self.clamp)
        return torch.where(self.known(codes), looked_up, first)


@dataclass(frozen=True, kw_only=True)
class CodedMasks(FrozenWeights, Algorithm):
    """Options of GR and PR.

    Attributes:
        n_is, n_ul, n_dl: n_IS, n_UL and n_DL; the last is null: as many as are behind the mean, num_clients n_UL.
        clamp: c. form: clip, priors are clip(theta, c, 1 - c); affine, theta is c + (1 - 2 c) mean everywhere.
        frozen, gain, theta0: see `FrozenWeights`. ste: see `MaskTraining`.
        ess_every: of a measurement that costs some percent of a round.
    """

    client: LocalSolver
    n_is: NumCandidates = 256
    n_ul: Annotated[int, Whole()] = 1
    n_dl: Annotated[int | None, Whole()] = None
    block: BlockSize = 256
    bits: ThresholdBits = 8
    clamp: float = 0.01
    form: Literal["clip", "affine"] = "clip"
    gain: Gain = "e_fan_in"
    ste: Ste = "p_weighted"
    test: TestedMask = "sample"
    test_samples: Annotated[int, Whole()] = 1
    ess_every: Annotated[int, Whole(0, "a number of rounds; 0 for never")] = 10
    weights: Literal["uniform"] = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        with options_of("algorithm"):
            _ = self.codec

    @property
    def training(self) -> MaskTraining:
        """Local training."""
        return MaskTraining(self.client, self.ste, self.clamp)

    @property
    def codec(self) -> MRC:
        """The uplink's code."""
        return MRC(self.n_is, self.n_ul, self.block, "shared", self.bits, self.clamp)

    def samples_down(self, num_clients: int) -> int:
        """n_DL."""
        return num_clients * self.n_ul if self.n_dl is None else self.n_dl

    def mean(self, counts: Tensor, num_clients: int) -> Tensor:
        """float32 theta [d], the mean of all samples of `num_clients` clients, counts [d] of which are ones."""
        share = counts.to(torch.float32) / (num_clients * self.n_ul)
        return clamped(share, self.clamp, self.form) if self.form == "affine" else share

    def first(self, theta: Tensor, setup: Setup, name: str) -> tuple[Tensor, Tensor]:
        """(frozen weights [D], theta_0 [D], 1 where nothing is masked), from the run's seed."""
        return self.first_masks(theta, masked_part(setup.tensors, name), setup)

    def common(self, name: str, cohort: Cohort, prior: Tensor, ctx: Context) -> SharedKnowledge:
        """What both ends know about the message called `name`, given the priors [1 or M, d] as thresholds."""
        layers = part_of(ctx.clients.tensors).layers
        return replace(ctx.common(name, cohort), layers=layers, side_information=prior)

    @property
    def servers_metrics(self) -> tuple[str, ...]:
        """Those of messages that the server codes."""
        return ("mrc/kl_down", "mrc/above_down", "mrc/ess_down")

    def diagnosed(self, link: str, q: Tensor, common: SharedKnowledge, codec: MRC, ctx: Context) -> Metrics:
        """How far posteriors q [M, d] are from what the code can carry.

        `mrc/kl_<link>` [M] mean divergence of a block in nats; `mrc/above_<link>` [M] share of blocks above the
        capacity ln n_IS; every `ess_every` rounds `mrc/ess_<link>` [M], how many candidates really count.
        """
        assert common.side_information is not None
        blocks = codec.cut(common.dim, q.device)
        kl = blocks.sums(kl_divergence(q, common.side_information, codec.bits, codec.clamp))
        metrics = {
            f"mrc/kl_{link}": kl.mean(1).to(torch.float32),
            f"mrc/above_{link}": share_above(kl, codec.num_candidates),
        }
        if self.ess_every and ctx.round % self.ess_every == 0:
            metrics[f"mrc/ess_{link}"] = codec.effective_sample_size(q, common)
        return metrics


def part_of(tensors: tuple[ParameterTensor, ...]) -> ParameterSubset:
    """The columns that are masked; `init` has checked that there are some."""
    return masked_part(tensors, "bicompfl")


def starts(blocks: Blocks) -> Tensor:
    """[d] bool: where blocks begin, the form in which a state of one shape holds them."""
    marks = torch.zeros(blocks.dim, dtype=torch.bool, device=blocks.offsets.device)
    marks[blocks.offsets[:-1]] = True
    return marks


def blocks_at(marks: Tensor) -> Blocks:
    """The blocks that begin where marks [d] say."""
    ends = torch.cat((marks.nonzero()[:, 0], marks.new_tensor([marks.shape[0]], dtype=torch.int64)))
    return Blocks.of(ends, marks.shape[0], marks.device)
