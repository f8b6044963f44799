"""NEOLITHIC: DoubleSqueeze whose every vector is sent in R compressed messages, each of what the ones before left out.

X. Huang, Y. Chen, W. Yin, K. Yuan, "Lower bounds and nearly optimal algorithms in distributed learning with
communication compression", NeurIPS 2022; FCC is its fast compressed communication. With u_i the local change
(minus the pseudo-gradient):

    client  s_i = FCC_R(u_i + e_i),    e_i <- u_i + e_i - s_i
    server  S = FCC_R(mean s_i + E),   E <- mean s_i + E - S
    all     x <- x + eta S

Differs from the paper: it accumulates R gradients a step, so that R messages cost as much as R steps of other methods;
here, as in the experiments of BiCompFL that take it as baseline with R = 2, one change is sent R times as dear.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedcomp.algorithm.doublesqueeze import DoubleSqueeze
from fedcomp.compressor import Compressor
from fedcomp.compressor.check import check_count
from fedcomp.compressor.repeated import Repeated


@dataclass(frozen=True)
class Neolithic(DoubleSqueeze):
    """DoubleSqueeze with R messages a vector in either direction; R = 1 is DoubleSqueeze.

    Attributes:
        repeats: R. A near-lossless compressor, such as dense, leaves nothing to send again and is used once.
    """

    repeats: int = 2

    def __post_init__(self) -> None:
        check_count("algorithm.repeats", self.repeats)
        super().__post_init__()
        object.__setattr__(self, "uplink", self._repeated(self.uplink))
        object.__setattr__(self, "downlink", self._repeated(self.downlink))

    def _repeated(self, compressor: Compressor) -> Compressor:
        if compressor.codec.near_lossless:
            return compressor
        return replace(compressor, codec=Repeated(compressor.codec, self.repeats))
