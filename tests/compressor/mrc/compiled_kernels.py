"""Run by test_coder.py: Triton's kernels compiled for a GPU that need not be there."""

from __future__ import annotations

import inspect

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from fedcomp.compressor.mrc import triton_kernels
from fedcomp.compressor.mrc.fixed_point import ENTRIES, OCTAVE

POINTERS = {
    "thresholds": "*u8",
    "offsets": "*i64",
    "keys": "*i64",
    "noise_keys": "*i64",
    "owner": "*i64",
    "indices": "*u8",
}
POINTERS |= {"indices": "*u8", "log_odds": "*i32", "gumbel": "*i32", "out": "*i32"}
CONSTANTS = {"NUM": 256, "BITS": 8, "COLUMNS": 16, "LANES": 256, "OCTAVE": OCTAVE, "ENTRIES": ENTRIES}


def main() -> None:
    """Print the name of each kernel that compiles."""
    for kernel in (triton_kernels.encode_kernel, triton_kernels.decode_kernel):
        names = list(inspect.signature(kernel.fn).parameters)
        types = {name: "constexpr" if name in CONSTANTS else POINTERS.get(name, "i32") for name in names}
        constants = {name: CONSTANTS[name] for name in names if name in CONSTANTS}
        made = triton.compile(ASTSource(kernel, types, constants), target=GPUTarget("cuda", 90, 32))
        assert "fma.rn" not in made.asm["ptx"]
        print(kernel.fn.__name__)


if __name__ == "__main__":
    main()
