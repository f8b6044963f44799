"""On a GPU: the CPU's draws and codes bit for bit, and every method under the conformance suite's exact checks."""

from collections.abc import Iterator
from functools import partial

import pytest
import torch

from fedcomp.check.algorithm import check_bits, check_one_client, check_zeros
from fedcomp.check.trajectory import check_pure, check_repeat, check_resume, check_wire
from fedcomp.compressor.mrc import coder
from fedcomp.compressor.mrc.blocks import Blocks
from fedcomp.model.batched.functional import ALL_AT_ONCE
from fedcomp.model.build import build
from fedcomp.model.contract import Batch
from fedcomp.model.networks.characters import char_lstm
from fedcomp.random.keys import DeviceKey, Key, seed_halves
from fedcomp.runtime.process_settings import set_determinism
from tests.algorithm.conformance_cases import CASES
from tests.compressor.mrc.coding_problems import SHAPES, problem
from tests.conformance import world

GPU = torch.device("cuda")
KEY, IDS = Key(("gpu",)), torch.tensor([0, 5, (1 << 32) + 5, -1])
CHECKS = (check_wire, check_resume, check_repeat, check_bits, check_pure, check_one_client, check_zeros)

pytestmark = pytest.mark.gpu
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)


@pytest.fixture(autouse=True)
def _as_a_run_is(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(world, "DEVICE", GPU)
    set_determinism(True, GPU)
    yield
    set_determinism(False, GPU)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_algorithm(case, check) -> None:
    check(case)


@pytest.mark.parametrize("num", [1, 33, 5000])
@pytest.mark.parametrize("name", ["bits", "uniform", "rademacher", "normal"])
def test_draws(name: str, num: int) -> None:
    for start in (0, 256):
        expected = getattr(KEY, name)(IDS, num, start)
        assert torch.equal(getattr(KEY, name)(IDS.to(GPU), num, start).cpu(), expected)
        if name in ("bits", "uniform"):
            held = DeviceKey(torch.from_numpy(seed_halves([KEY]))[0].to(GPU))
            assert torch.equal(getattr(held, name)(IDS.to(GPU), num, start).cpu(), expected)


def test_lstms_of_all_clients_at_once() -> None:
    model = build(partial(char_lstm, hidden=40, embedding=3), KEY, (9,), 5, "next_token", vocab_size=5)
    theta = torch.stack([model.init(KEY.fold_in(client))[0] for client in range(3)]).double().to(GPU)
    x, y = torch.arange(3 * 4 * 9, device=GPU).view(3, 4, 9) % 5, torch.arange(12, device=GPU).view(3, 4) % 5
    batch = Batch(x, y, None, theta[:, :0])
    together = model.gradient(theta, batch).grad
    assert not model.vmap_refused
    assert not ALL_AT_ONCE.refused
    model.vmap_refused = True
    torch.testing.assert_close(together, model.gradient(theta, batch).grad, rtol=1e-9, atol=1e-12)


def test_subsets() -> None:
    assert torch.equal(KEY.choice(IDS.to(GPU), 40, 999).cpu(), KEY.choice(IDS, 40, 999))


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("shape", SHAPES)
def test_minimal_random_coding(shape, bits: int) -> None:
    found = []
    for device in ("cpu", str(GPU)):
        given = problem(*shape, 200, bits, Blocks.of([0, 1, 20, 21, 700], 700, device), device)
        chosen = coder.encode(*given.plain, repetitions=2)
        decoded = coder.decode(chosen, given.prior)
        found.append((chosen.cpu(), decoded.cpu()))
    for ours, theirs in zip(*found):
        assert torch.equal(ours, theirs)
