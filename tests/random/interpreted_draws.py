"""Run by test_draws_gpu.py under TRITON_INTERPRET=1: Triton's draws beside those of `keys.py`."""

import torch

from fedcomp.random import philox_triton
from fedcomp.random.keys import Key, seed_halves

KEYS = (Key(("draws", 3)), Key(("draws", 6)))
IDS = torch.tensor([5, (1 << 32) + 5, -1])
SIZES = (0, 3, 1025)
STARTS = (0, 1024)


def main() -> None:
    """Print the name of each draw that agrees for all sizes, for keys of the host and of the device."""
    assert [(key.seed >> 31 & 1, key.seed >> 63) for key in KEYS] == [(1, 1), (0, 0)], "halves of either sign"
    for name in ("bits", "uniform", "rademacher"):
        for key in KEYS:
            own = getattr(key, name)
            for start in STARTS:
                for num in SIZES:
                    _same(philox_triton.draw(name, key.seed, IDS, num, start), own(IDS, num, start))
            _same(philox_triton.draw(name, torch.from_numpy(seed_halves([key]))[0], IDS, 33, 128), own(IDS, 33, 128))
            _same(philox_triton.draw(name, key.seed, IDS.repeat(2)[::2], 7, 0), own(IDS[[0, 2, 1]], 7))
            assert philox_triton.draw(name, key.seed, IDS[:0], 5, 0).shape == (0, 5)
        print(name)


def _same(got: torch.Tensor, expected: torch.Tensor) -> None:
    assert got.dtype == expected.dtype
    assert torch.equal(got, expected)


if __name__ == "__main__":
    main()
