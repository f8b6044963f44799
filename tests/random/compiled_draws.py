"""Run by test_draws_gpu.py: Triton's draws compiled for a GPU that need not be there."""

from __future__ import annotations

import inspect

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from fedcomp.random import philox_triton
from fedcomp.random.philox_triton import COUNTERS_PER_PROGRAM, TYPES

POINTERS = {"keys": "*i64", "ids": "*i64"}


def main() -> None:
    """Print the name of each kernel that compiles, with keys of the host and of the device."""
    for name, lanes in COUNTERS_PER_PROGRAM.items():
        kernel = getattr(philox_triton, name)
        out = "*i64" if TYPES[name].itemsize == 8 else "*fp32"
        for known in (True, False):
            constants = {"KNOWN": known, "LANES": lanes}
            types = {
                argument: "constexpr" if argument in constants else (POINTERS | {"out": out}).get(argument, "i32")
                for argument in inspect.signature(kernel.fn).parameters
            }
            compiled = triton.compile(ASTSource(kernel, types, constants), target=GPUTarget("cuda", 90, 32))
            assert "fma.rn" not in compiled.asm["ptx"]
        print(name)


if __name__ == "__main__":
    main()
