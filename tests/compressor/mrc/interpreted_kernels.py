"""Run by test_coder.py under TRITON_INTERPRET=1: Triton's kernels beside the reference."""

import torch

from fedcomp.compressor.mrc import reference, triton_kernels
from fedcomp.compressor.mrc.blocks import Blocks
from tests.compressor.mrc.coding_problems import problem

RAGGED = Blocks.of([0, 1, 20, 21, 37], 37)


def main() -> None:
    """Print a word for each case in which indices and decoded counts agree."""
    cases = [
        ((3, "shared", 1), 5, 8, RAGGED),
        ((1, "shared", 1), 300, 16, RAGGED.part(1, 3)),
        ((2, "per_client", 2), 2, 32, RAGGED.part(0, 3)),
        ((triton_kernels.MAX_COLUMNS + 1, "shared", 1), 2, 8, RAGGED.part(1, 2)),
    ]
    for shape, num, bits, blocks in cases:
        given = problem(*shape, num, bits, blocks)
        chosen = reference.encode(*given.encoding)
        assert torch.equal(triton_kernels.encode(*given.encoding), chosen)
        for rows in (shape[0], 1):
            expected, counts = (torch.zeros(rows, blocks.dim, dtype=torch.int32) for _ in range(2))
            reference.decode(chosen, given.prior, expected)
            triton_kernels.decode(chosen, given.prior, counts)
            assert torch.equal(counts, expected)
        print("agree")


if __name__ == "__main__":
    main()
