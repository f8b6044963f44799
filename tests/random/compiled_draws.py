"""Run by test_draws_gpu.py: Triton's draws compiled for a GPU that need not be there."""

from fedcomp.random import philox_triton
from fedcomp.random.philox_triton import COUNTERS_PER_PROGRAM, TYPES
from tests.compiled_for_gpu import compiled

POINTERS = {"keys": "*i64", "ids": "*i64"}


def main() -> None:
    """Print the name of each kernel that compiles, with keys of the host and of the device."""
    for name, lanes in COUNTERS_PER_PROGRAM.items():
        kernel = getattr(philox_triton, name)
        out = {"out": "*i64" if TYPES[name].itemsize == 8 else "*fp32"}
        for known in (True, False):
            made = compiled(kernel, POINTERS | out, {"KNOWN": known, "LANES": lanes})
            assert "fma.rn" not in made.asm["ptx"]
        print(name)


if __name__ == "__main__":
    main()
