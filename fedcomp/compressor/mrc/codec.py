"""Minimal random coding as a codec: it encodes posteriors as indices and decodes counts of ones.

BiCompFL, arXiv:2502.00206, and `coder.py`. A row is a vector of probabilities q. `SharedKnowledge.side_information` is
the prior that both ends have, as thresholds (`thresholds.py`). A message has n_s B ceil(log2 n_IS) bits.

Shape legend: M senders, P priors (1 or M), D entries, B blocks, R = n_s repetitions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.compressor.contract import Codec
from fedcomp.compressor.mrc.blocks import Blocks, BlockSize
from fedcomp.compressor.mrc.candidates import UPLINK, Candidates, CandidateSource, Prior, streams
from fedcomp.compressor.mrc.coder import Map, decode, encode
from fedcomp.compressor.mrc.diagnostics import effective_sample_size
from fedcomp.compressor.mrc.thresholds import TYPES, Clamp
from fedcomp.core.ranges import Whole
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Coding, Digits, Unsigned, bits_for

NumCandidates = Annotated[int, Whole(most=1 << 16)]
ThresholdBits = Annotated[Literal[8, 16, 32], "the width of a threshold"]


@dataclass(frozen=True)
class MRC(Codec):
    """Sends a Bernoulli sample of each row as one index per block; nearly unbiased while blocks are below capacity.

    Attributes:
        num_candidates: n_IS, 1 to 65536; 1 sends nothing and decodes to a sample of the prior.
        repetitions: n_s independent samples, whose mean is decoded.
        block: entries per block, unless `blocks` is given.
        candidates: shared, all senders choose from the same candidates; per_client, each sender has its own. Messages
            have the same bits. Shared candidates need 1/M of the random numbers, but senders that choose the same one
            decode to the same sample, which multiplies the variance of their mean by 1 + (M - 1) / ESS.
        bits: b of a threshold and of the uniform numbers: 8, 16 or 32. 8 is enough for priors in [0.01, 0.99].
        clamp: c; posteriors are clamped to [c, 1 - c].
        packing: fixed, ceil(log2 n_IS) bits per index; digits, several indices in whole bytes where that is shorter.
        domain: of the counter: 0 uplink, 1 downlink.
        blocks: the round's blocks, if they have no fixed size.
    """

    num_candidates: NumCandidates = 256
    repetitions: Annotated[int, Whole()] = 1
    block: BlockSize = 256
    candidates: CandidateSource = "shared"
    bits: ThresholdBits = 8
    clamp: Clamp = 0.01
    packing: Literal["fixed", "digits"] = "fixed"
    domain: int = UPLINK
    blocks: Blocks | None = None

    @property
    def coding(self) -> Coding:
        """Coding of an index."""
        if self.packing == "digits" and self.num_candidates > 1:
            return Digits(self.num_candidates)
        return Unsigned(bits_for(self.num_candidates), self.num_candidates)

    def cut(self, dim: int, device: torch.device) -> Blocks:
        """The blocks of a vector of `dim` entries."""
        return Blocks.fixed(dim, self.block, device) if self.blocks is None else self.blocks

    def within(self, blocks: Blocks) -> "MRC":
        """This codec with the blocks of a round."""
        return replace(self, blocks=blocks)

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key, map_pieces: Map = map) -> Payload:
        """Indices of posteriors x [M, D], one repetition after another; `sender_key` is the key of the choices.

        Raises:
            ValueError: an entry of x is not in [0, 1] (checked on a CPU only, since a GPU would have to synchronise).
        """
        check_probabilities(x)
        noise_keys = sender_key.bits(common.ids, 2)
        chosen = encode(x, self._prior(common), noise_keys, self.repetitions, self.clamp, map_pieces)
        return Payload({"indices": Field(chosen.flatten(1), self.coding)})

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """[M, D] float32 the mean of the R samples."""
        return self.counts(payload, common).to(torch.float32).div_(self.repetitions)

    def counts(self, payload: Payload, common: SharedKnowledge, map_pieces: Map = map) -> Tensor:
        """[M, D] int32 number of the R samples that have a one; `decode` is this divided by R."""
        return self._decoded(payload, common, False, map_pieces)

    def total(self, payload: Payload, common: SharedKnowledge, map_pieces: Map = map) -> Tensor:
        """[D] int32 the counts summed over senders, without materialising their rows."""
        return self._decoded(payload, common, True, map_pieces)[0]

    def effective_sample_size(self, x: Tensor, common: SharedKnowledge) -> Tensor:
        """[M] effective sample size of the candidates for posteriors x [M, D]; see `diagnostics.py`."""
        return effective_sample_size(x, self._prior(common), self.clamp)

    def layout(self, dim: int) -> Mapping[str, int]:
        """{field of a message for `dim` entries: number of its entries}."""
        num = -(-dim // self.block) if self.blocks is None else self.blocks.num
        return {"indices": self.repetitions * num}

    def _decoded(self, payload: Payload, common: SharedKnowledge, total: bool, map_pieces: Map) -> Tensor:
        (indices,) = payload.expect(**self.layout(common.dim))
        prior = self._prior(common)
        return decode(indices.view(len(indices), self.repetitions, prior.blocks.num), prior, total, map_pieces)

    def _prior(self, common: SharedKnowledge) -> Prior:
        keys = streams(self.candidates, common.key, common.ids)
        candidates = Candidates(keys, self.num_candidates, self.bits, self.domain)
        return Prior(known_thresholds(common, self.bits), self.cut(common.dim, common.ids.device), candidates)


def known_thresholds(common: SharedKnowledge, bits: int) -> Tensor:
    """[P, D] the thresholds that both ends know."""
    side = common.side_information
    assert side is not None, "`common.side_information` is the prior, as thresholds"
    assert side.dtype == TYPES[bits], f"thresholds of {bits} bits are {TYPES[bits]}, not {side.dtype}"
    assert side.shape in ((1, common.dim), (len(common.ids), common.dim)), side.shape
    return side


def check_probabilities(x: Tensor) -> None:
    """Raise ValueError unless all entries of x are in [0, 1]; only on a CPU, since a GPU would synchronise."""
    if x.device.type != "cpu" or not x.numel():
        return
    entries = x.numpy()  # by NumPy: tests count torch operations that synchronise
    low, high = float(entries.min()), float(entries.max())
    if not (low >= 0.0 and high <= 1.0):
        raise ValueError(f"posteriors must be probabilities in [0, 1]; these lie between {low} and {high}")


@dataclass(frozen=True, kw_only=True)
class CodedByMRC(Codec):
    """Options of compressors that send a part of their message by minimal random coding; they are biased.

    `num_candidates` is n_IS, `repetitions` n_UL: the samples whose mean is decoded.
    """

    num_candidates: NumCandidates = 256
    repetitions: Annotated[int, Whole()] = 1
    block: BlockSize = 256
    candidates: CandidateSource = "shared"
    bits: ThresholdBits = 8

    @property
    def codec(self) -> MRC:
        """The codec of the samples."""
        return MRC(self.num_candidates, self.repetitions, self.block, self.candidates, self.bits)
