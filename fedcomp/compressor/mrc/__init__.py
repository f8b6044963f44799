"""Minimal random coding of Bernoulli vectors: `coder.py` explains the method, `codec.py` is the codec.

There are three implementations: `reference` (tensors), `cpu` with `numba_kernels`, and `triton_kernels` (GPU). They
share `candidates`, `thresholds`, `blocks` and `fixed_point`. `allocation` chooses the blocks of a vector, `mixing`
optimises priors, `split` sends each receiver a part of a vector, `mrc_sign` and `mrc_quantiser` are compressors of
updates, and `diagnostics` measures the coding error.
"""

from fedcomp.compressor.mrc.blocks import Blocks
from fedcomp.compressor.mrc.codec import MRC
from fedcomp.compressor.mrc.split import SplitMRC

__all__ = ["MRC", "Blocks", "SplitMRC"]
