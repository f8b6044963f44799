"""Block allocations: how the blocks of a vector are chosen, and how both ends agree on them."""

from fedcomp.compressor.mrc.allocation.adaptive import Adaptive
from fedcomp.compressor.mrc.allocation.adaptive_average import AdaptiveAverage
from fedcomp.compressor.mrc.allocation.contract import Changing, Fixed, decided, decision

__all__ = ["Adaptive", "AdaptiveAverage", "Changing", "Fixed", "decided", "decision"]
