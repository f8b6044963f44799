"""Run by test_mlp_triton.py: the kernel compiled for a GPU that need not be there, at its largest sizes."""

from fedcomp.model.batched.backward.mlp_triton import NUM_WARPS, sizes, train_kernel
from tests.compiled_for_gpu import compiled

POINTERS = dict.fromkeys(("theta", "offset", "scale", "out", "losses"), "*fp32")
POINTERS |= {"targets": "*i64", "sample_indices": "*i64", "counts": "*i32", "rate": "fp32", "decay": "fp32"}
LARGEST = ((64, 32, 10, 10), (64, 32, 16, 16), (32, 64, 16, 16))


def main() -> None:
    """Print the sizes that compile, for samples of bytes and of floats."""
    for shape in LARGEST:
        constants = sizes(*shape)
        assert constants is not None
        for kind in ("*u8", "*fp32"):
            given = constants | {"ONE_SCALE": False, "HAS_BIAS": True}
            made = compiled(train_kernel, POINTERS | {"samples": kind}, given, NUM_WARPS)
            assert "tf32" not in made.asm["ptx"]
        print(*shape, sep="-")


if __name__ == "__main__":
    main()
