"""Draws: compiled and tensor code agree bit for bit on odd sizes; each is its formula of the words."""

import math
import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from fedcomp.random import keys, philox_numba
from fedcomp.random.box_muller import box_muller
from fedcomp.random.keys import Key
from tests.looped import looped

KEY = Key(("draws", 3))
IDS = torch.tensor([0, 5, (1 << 32) + 5, (1 << 62) + 1, -1, -(1 << 33)])
"""Numbers of one and of two words, and those whose 64 bits read as negative."""
SIZES = (0, 1, 2, 3, 31, 33, 127, 1023, 1025, 4096, 32_769, 70_001)
DRAWS = ("bits", "uniform", "rademacher", "normal")


@pytest.fixture(autouse=True)
def _always_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """All draws of this file are compiled, but for those within `tensors`."""
    monkeypatch.setattr(keys, "COMPILE_AFTER_WORDS", 0)


def tensors(draw: Callable[[], Tensor]) -> Tensor:
    """The same draw by the tensor code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "_compiled", lambda *_: None)
        return draw()


@looped("name", DRAWS)
def test_compiled_draws_are_those_of_the_tensors(name: str) -> None:
    draw = getattr(KEY, name)
    for size in SIZES:
        fast, slow = draw(IDS, size), tensors(lambda size=size: draw(IDS, size))
        assert fast.dtype == slow.dtype
        assert torch.equal(fast, slow), size
    for num in (0, 1):
        assert torch.equal(draw(IDS[:num], 77), tensors(lambda num=num: draw(IDS[:num], 77)))
    assert torch.equal(draw(IDS.repeat(2)[::2], 40), draw(IDS[[0, 2, 4, 0, 2, 4]], 40))


@looped("name", DRAWS)
@looped("start", [128, 1024, 128 * 300])
def test_rows_are_drawn_in_blocks(name: str, start: int) -> None:
    draw = getattr(KEY, name)
    whole = draw(IDS, 40_001)
    assert torch.equal(draw(IDS, 40_001 - start, start), whole[:, start:])
    assert torch.equal(draw(IDS, 55, start), tensors(lambda: draw(IDS, 55, start)))


@looped("num, out_of", [(0, 9), (1, 1), (1, 1025), (7, 7), (3, 10), (1999, 2000), (3000, 100_003)])
def test_compiled_subsets_are_those_of_the_tensors(num: int, out_of: int) -> None:
    fast = KEY.choice(IDS, num, out_of)
    assert fast.dtype == torch.int64
    assert torch.equal(fast, tensors(lambda: KEY.choice(IDS, num, out_of)))
    assert torch.equal(fast, fast.sort(1).values)


def test_subset_where_the_threshold_is_missed_and_where_words_tie() -> None:
    kept = np.array([(word << 31) | place for place, word in enumerate([9, 3, 3, 0, 3, 1])], np.int64)
    order = sorted(kept.tolist())
    for threshold in (9, 1 << 20, 0xFFFFFFFF):
        assert [philox_numba._smallest(kept, num, threshold) for num in range(1, 7)] == order

    # One of 40: all words are above the threshold (1 + 4 sqrt(39/40) + 1) / 40 in one row of 600, which keeps all then.
    ids = torch.arange(100_000)
    assert torch.equal(KEY.choice(ids, 1, 40), tensors(lambda: KEY.choice(ids, 1, 40)))


def test_uniform_is_the_first_24_bits_of_a_word() -> None:
    assert torch.equal(KEY.uniform(IDS, 10_000), (KEY.bits(IDS, 10_000) >> 8) * 2.0**-24)


def test_signs_are_the_bits_of_words() -> None:
    bits = (KEY.bits(IDS, 64)[:, :, None] >> torch.arange(32)) & 1
    assert torch.equal(KEY.rademacher(IDS, 64 * 32), 2.0 * bits.flatten(1) - 1)


def test_normal_is_box_mullers_formula() -> None:
    words = KEY.bits(IDS, 100_000).double().numpy()
    radius = np.sqrt(-2 * np.log((words[:, 0::2] + 0.5) * 2.0**-32))
    angle = words[:, 1::2] * (2 * np.pi * 2.0**-32)
    expected = np.stack((radius * np.cos(angle), radius * np.sin(angle)), 2).reshape(len(IDS), -1)
    np.testing.assert_allclose(KEY.normal(IDS, 100_000).numpy(), expected, rtol=1e-7, atol=1e-9)


def test_normal_at_the_ends_of_its_range() -> None:
    top = (1 << 32) - 1
    words = torch.tensor([[0, 0, top, 0, 0, 1 << 30, 0, 1 << 31, 0, 3 << 30, top, top]])
    longest, shortest = math.sqrt(66 * math.log(2)), 2.0**-16
    expected = [[longest, 0, shortest, 0, 0, longest, -longest, 0, 0, -longest, shortest, 0]]
    torch.testing.assert_close(box_muller(words), torch.tensor(expected), rtol=1e-7, atol=1e-13)


@pytest.mark.thorough
def test_draws_without_a_place_for_compiled_code(tmp_path) -> None:
    """NUMBA_CACHE_DIR cannot be made, and, as in an installation that nobody may write, there is no other place."""
    (tmp_path / "file").write_text("in the way")
    script = """
from numba.core import caching
for impl in vars(caching).values():
    if hasattr(impl, "_locator_classes"):
        impl._locator_classes = [place for place in impl._locator_classes if "UserProvided" in place.__name__]
import torch
from fedcomp.random import keys, philox_numba
from fedcomp.random.box_muller import box_muller
keys.COMPILE_AFTER_WORDS = 0
print(keys.Key().rademacher(torch.arange(2), 9).sum(1).tolist())
"""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "file" / "cache")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tensors(lambda: Key().rademacher(torch.arange(2), 9)).sum(1).tolist())
