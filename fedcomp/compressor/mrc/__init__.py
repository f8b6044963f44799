"""Minimal random coding of Bernoulli vectors; `coder.py` says what it is, `codec.py` is the codec.

`candidates`, `thresholds`, `blocks` and `fixed_point` are what all implementations share: `reference` in plain
tensors, `cpu` compiled by numba, `gpu` by Triton. `allocation` cuts vectors into blocks, `mixing` optimises priors,
`split` sends vectors in parts, `sign_posterior` and `quantiser` make posteriors of updates, `diagnostics` shows what
is lost.
"""

from fedcomp.compressor.mrc.blocks import Blocks
from fedcomp.compressor.mrc.codec import MRC
from fedcomp.compressor.mrc.split import SplitMRC

__all__ = ["MRC", "Blocks", "SplitMRC"]
