"""Run by test_coder.py: Triton's kernels compiled for a GPU that need not be there."""

from fedcomp.compressor.mrc import triton_kernels
from fedcomp.compressor.mrc.fixed_point import ENTRIES, OCTAVE
from tests.compiled_for_gpu import compiled

POINTERS = {"offsets": "*i64", "keys": "*i64", "noise_keys": "*i64", "owner": "*i64"}
POINTERS |= {"indices": "*u8", "log_odds": "*i32", "gumbel": "*i32", "out": "*i32"}
THRESHOLDS = {8: "*u8", 16: "*i16"}
CONSTANTS = {"NUM": 256, "OCTAVE": OCTAVE, "ENTRIES": ENTRIES}


def main() -> None:
    """Print the name of each kernel that compiles, with priors of 8 and 16 bits."""
    lanes = {"encode_kernel": triton_kernels.MAX_LANES, "decode_kernel": triton_kernels.DECODE_LANES}
    for name, num in lanes.items():
        for bits, thresholds in THRESHOLDS.items():
            constants = CONSTANTS | {"BITS": bits, "COLUMNS": triton_kernels.MAX_COLUMNS, "LANES": num}
            pointers = POINTERS | {"thresholds": thresholds}
            made = compiled(getattr(triton_kernels, name), pointers, constants)
            assert "fma.rn" not in made.asm["ptx"]
        print(name)


if __name__ == "__main__":
    main()
