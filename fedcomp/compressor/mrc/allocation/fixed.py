"""Blocks of one size for the whole run; nothing to agree on."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedcomp.compressor.mrc.blocks import Blocks, check_block


@dataclass(frozen=True)
class Fixed:
    """0, s, 2s, ..., d.

    Attributes:
        size: s; the last block is as long as is left.
    """

    size: int = 256

    def __post_init__(self) -> None:
        check_block("size", self.size)

    def first(self, dim: int, device: torch.device | str = "cpu") -> Blocks:
        """The blocks of every round."""
        return Blocks.fixed(dim, self.size, device)
