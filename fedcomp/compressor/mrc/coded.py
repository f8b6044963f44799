"""Options of compressors that leave a part of their message to minimal random coding."""

from __future__ import annotations

from dataclasses import dataclass

from fedcomp.compressor.mrc.codec import MRC


@dataclass(frozen=True, kw_only=True)
class Coded:
    """What such compressors have in common; they are biased.

    Attributes:
        num_candidates: n_IS. repetitions: n_UL, samples whose mean is decoded. block: entries a block.
        candidates: shared by all senders, or per_client.
        bits: of a threshold, and of the uniform numbers that candidates are made of.
    """

    num_candidates: int = 256
    repetitions: int = 1
    block: int = 256
    candidates: str = "shared"
    bits: int = 8
    unbiased: bool = False
    contractive: bool = False
    near_lossless: bool = False

    def __post_init__(self) -> None:
        try:
            _ = self.codec  # it checks its own options
        except ValueError as error:
            raise ValueError(f"compressor.{error}") from error

    @property
    def codec(self) -> MRC:
        """The code of the samples."""
        return MRC(self.num_candidates, self.repetitions, self.block, self.candidates, self.bits)
