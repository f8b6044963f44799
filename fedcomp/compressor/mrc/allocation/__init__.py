"""How a vector is cut into blocks, and how both ends agree on it. One file a strategy."""

from fedcomp.compressor.mrc.allocation.adaptive import Adaptive
from fedcomp.compressor.mrc.allocation.adaptive_average import AdaptiveAverage
from fedcomp.compressor.mrc.allocation.contract import Allocation, Changing, decided, decision
from fedcomp.compressor.mrc.allocation.fixed import Fixed

__all__ = ["Adaptive", "AdaptiveAverage", "Allocation", "Changing", "Fixed", "decided", "decision"]
