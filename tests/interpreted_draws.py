"""Run by test_draws_gpu.py under TRITON_INTERPRET=1: Triton's draws beside those of `keys.py`."""

from __future__ import annotations

import torch

from fedcomp import philox_gpu
from fedcomp.keys import Key, halves

KEYS = (Key(("draws", 3)), Key(("draws", 4)))
IDS = torch.tensor([0, 5, (1 << 32) + 5, (1 << 62) + 1, -1, -(1 << 33)])
SIZES = (0, 3, 33, 1025, 4097)
STARTS = (0, 1024)


def main() -> None:
    """Print the name of each draw that agrees for all sizes, for keys of the host and of the device."""
    known = [key.seed for key in KEYS]
    assert any(seed >> 63 for seed in known) or any(seed >> 31 & 1 for seed in known), "no half reads as negative"
    for name in ("words", "uniform", "signs"):
        for key in KEYS:
            for num in SIZES:
                for start in STARTS:
                    expected = getattr(key, name)(IDS, num, start)
                    for seed in (key.seed, torch.from_numpy(halves([key]))[0]):
                        got = philox_gpu.draw(name, seed, IDS.repeat(2)[::2] if num == 33 else IDS, num, start)
                        assert got.dtype == expected.dtype
                        if num == 33:
                            expected = getattr(key, name)(IDS.repeat(2)[::2], num, start)
                        assert torch.equal(got, expected), (name, num, start)
            assert philox_gpu.draw(name, key.seed, IDS[:0], 5, 0).shape == (0, 5)
        print(name)


if __name__ == "__main__":
    main()
