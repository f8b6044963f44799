"""Draws of GPUs: Triton's kernels, and keys that only the device knows, give the bits of `keys.py`."""

from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from fedcomp.core.accelerated import plainly
from fedcomp.random import keys, philox_numba
from fedcomp.random.keys import DeviceKey, Key, seed_halves
from tests.printed import printed_by

KEY = Key(("draws", 3))
IDS = torch.tensor([0, 5, (1 << 32) + 5, -1])
TRIAL, MADE = keys._TRIAL, keys._drawn_by_triton
NAMES = ["bits", "uniform", "rademacher"]
no_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")


@no_triton
@pytest.mark.thorough
def test_triton_draws_the_same_bits() -> None:
    """Under Triton's interpreter, which must be chosen before triton is imported: a process of its own."""
    assert printed_by("tests.random.interpreted_draws", TRITON_INTERPRET="1") == NAMES


@pytest.mark.slow
@no_triton
def test_kernels_compile_for_a_gpu() -> None:
    """For compute capability 9.0, which needs no GPU: the interpreter takes types that the compiler refuses."""
    assert printed_by("tests.random.compiled_draws") == NAMES


def test_a_device_key_draws_what_its_key_does() -> None:
    others = [KEY, Key(("other",)), Key(())]
    for key, pair in zip(others, torch.from_numpy(seed_halves(others))):
        device_key = DeviceKey(pair)
        for num, start in ((0, 0), (1, 0), (9, 0), (77, 128)):
            assert torch.equal(device_key.bits(IDS, num, start), key.bits(IDS, num, start))
            assert torch.equal(device_key.uniform(IDS, num, start), key.uniform(IDS, num, start))
    assert not torch.equal(DeviceKey(pair).bits(IDS, 9), KEY.bits(IDS, 9))


def test_a_device_key_follows_what_is_written_to_it() -> None:
    slot = torch.zeros(2, dtype=torch.int64)
    device_key = DeviceKey(slot)
    for step in range(2):
        slot.copy_(torch.from_numpy(seed_halves([KEY.fold_in(step)]))[0])
        assert torch.equal(device_key.uniform(IDS, 5), KEY.fold_in(step).uniform(IDS, 5))


def test_halves() -> None:
    (pair,) = seed_halves([KEY])
    assert int(pair[0]) | int(pair[1]) << 32 == KEY.seed
    assert seed_halves([]).shape == (0, 2)
    assert seed_halves([KEY]).dtype == np.int64


def test_triton_is_asked_for_on_gpus_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def draw(name: str, *given: object) -> torch.Tensor:
        asked.append((name, *given))
        return torch.zeros(4, 33)

    assert not keys.has_triton(torch.device("cpu"))
    monkeypatch.setattr(keys, "_compiled", lambda *_: None)
    monkeypatch.setattr(keys, "has_triton", lambda device: True)
    monkeypatch.setattr(keys, "_by_triton", draw)
    for name in ("uniform", "rademacher"):
        getattr(KEY, name)(IDS, 33, 128)
        assert asked.pop() == (name, KEY.seed, IDS, 33, 128)
    DeviceKey(IDS[:2]).uniform(IDS, 33)
    assert asked.pop()[0] == "uniform"


@pytest.mark.parametrize("wrong", [None, *NAMES, "last draw", "device key", "no compiler"])
def test_triton_draws_what_the_host_draws_before_it_is_relied_on(monkeypatch, caplog, wrong) -> None:
    """A kernel that is off by a bit in one draw, that forgets the device's key, or that returns zeros is refused."""
    tried = []

    def draw(name: str, seed: int | torch.Tensor, ids: torch.Tensor, num: int, start: int) -> torch.Tensor:
        tried.append(name)
        if wrong == "no compiler":
            raise RuntimeError("Failed to find C compiler.\nPlease specify one.")
        with plainly():
            key = DeviceKey(seed) if torch.is_tensor(seed) and name != "rademacher" else TRIAL
            drawn = getattr(key, name)(ids, num, start)
        if wrong == name or (wrong == "device key" and torch.is_tensor(seed)):
            return torch.zeros_like(drawn)
        if wrong == "last draw" and name == "bits":
            drawn[-1, -1] ^= 1
        return drawn

    monkeypatch.setattr(keys, "_triton_is_installed", lambda: True)
    monkeypatch.setattr(keys, "_by_triton", draw)
    monkeypatch.setattr(keys, "_drawn_by_triton", partial(lambda made, device: made(torch.device("cpu")), MADE))
    for _ in range(2):
        assert keys.has_triton(torch.device("cuda")) is (wrong is None)
    assert tried.count("bits") <= 3  # tried once
    said = [record.message for record in caplog.records if "not used" in record.message]
    assert len(said) == (wrong is not None)
    if wrong is not None:
        assert caplog.records[0].message.startswith("Triton's kernels are not used, but tensor operations instead: ")


def test_a_machine_without_triton(monkeypatch, caplog) -> None:
    monkeypatch.setattr(keys, "_triton_is_installed", lambda: False)
    assert not keys.has_triton(torch.device("cuda"))
    assert not caplog.records


def test_compiled_draws_that_are_off_by_a_bit_are_refused(monkeypatch, caplog) -> None:
    with plainly():
        expected = KEY.bits(IDS, 40)
    monkeypatch.setattr(keys, "COMPILE_AFTER_WORDS", 0)
    real = philox_numba.bits

    def off(seed, rows, start, out) -> None:
        real(seed, rows, start, out)
        out[-1, -1] ^= 1

    monkeypatch.setattr(philox_numba, "bits", off)
    assert torch.equal(KEY.bits(IDS, 40), expected)
    (record,) = caplog.records
    assert record.message.startswith("compiled draws are not used, but those of NumPy instead: other results")
