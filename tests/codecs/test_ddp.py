"""The hooks for DistributedDataParallel with real processes: the models of a simulation, its bits, resumed memories."""

import subprocess
import sys
from typing import Any

import pytest
import torch

from fedcomp.wire import Ledger
from tests.codecs import ddp_process as ranked
from tests.docs.pages import ROOT

DIM = 64 * 16 + 16 + 16 * 10 + 10


pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module", params=[2, 3])
def together(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each process found."""
    size, folder = request.param, tmp_path_factory.mktemp("ddp")
    command = [sys.executable, "-m", "tests.codecs.ddp_process"]
    running = [subprocess.Popen([*command, str(rank), str(size), str(folder)], cwd=ROOT) for rank in range(size)]
    assert [one.wait(timeout=300) for one in running] == [0] * size
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(size)]


def test_every_codec_gives_the_model_of_the_simulation_bit_for_bit(together) -> None:
    for name, options in ranked.GATHERED.items():
        sim, ledger = ranked.simulation(len(together), name, **options), Ledger()
        state = sim.init()
        for step in range(ranked.STEPS):
            state, _ = sim.round(step, state, ledger)
            for found in together:
                assert torch.equal(found[name][0][step], state.theta), f"{name}, step {step}"
        bits = sum(found[name][1].bits for found in together)
        assert bits == ledger.metrics(DIM)["bits/uplink"], name


def test_bytes_carried_are_the_bits_and_what_fills_them_up(together) -> None:
    for found in together:
        for name in ("dense", "sign", "eden", "randk"):
            count = found[name][1]
            assert count.carried == ranked.STEPS * -(-count.bits // ranked.STEPS // 8), name
        count = found["qsgd"][1]  # of varying length: eight bytes for each length, and up to the longest
        assert count.bits / 8 + 8 * ranked.STEPS <= count.carried


def test_other_hooks_learn_and_agree(together) -> None:
    for name in ("buckets", "gradients", "shared_randk", "powersgd"):
        theta, count, losses, _ = together[0][name]
        assert losses[-1] < losses[0] - 0.1, name
        assert all(torch.equal(found[name][0], theta) for found in together), name
        assert count.bits > 0, name
    assert together[0]["buckets"][3] > 1  # codecs: it had several buckets


def test_a_hook_goes_on_from_its_state(together) -> None:
    for found in together:
        for whole, again in found["resumed"]:
            assert torch.equal(whole, again)
