"""How many clients at once: sizes that fit, of which the faster round decides, and a run keeps the choice."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn

from fedcomp.model.batched import functional
from fedcomp.model.batched.folded import Folded
from fedcomp.model.batched.functional import Functional
from fedcomp.model.build import build
from fedcomp.model.chunking import CACHE_BYTES, chunk_size, client_bytes, num_activations
from fedcomp.model.contract import Batch
from fedcomp.model.networks.cnn import lenet5
from fedcomp.model.networks.mlp import mlp
from fedcomp.model.tunable import IN_BATCH, VMAP
from fedcomp.random.keys import Key
from fedcomp.runtime.process_settings import keep_freed_memory
from fedcomp.runtime.workers import Workers
from fedcomp.simulation.autotune import chunk_autotune
from fedcomp.simulation.autotune.conv_autotune import plan_convolutions
from fedcomp.simulation.autotune.plan import FILE, Plan
from fedcomp.wire import Ledger
from tests.conformance import world
from tests.looped import looped
from tests.lora_networks import lora_mlp
from tests.model.plain_modules import assert_close, batch, rows
from tests.parts import Full, fedavg
from tests.raising import raising


def test_the_faster_round_decides_and_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of four clients on two workers one at a time, or two: a gain below 5 % is none, nor is what memory lacks."""
    sim = world.simulation(fedavg(), participation=Full(), chunk_size=1)
    object.__setattr__(sim, "workers", Workers(2))
    num = len(sim.shards.sizes)
    share = -(-num // 2)
    assert all(chunk_autotune._seconds(sim, Plan((), size)) > 0 for size in (1, share))
    seconds = {1: 1.0, share: 0.9}
    monkeypatch.setattr(chunk_autotune, "_seconds", lambda _, one: seconds[one.chunk_size])

    def chosen(mode: str = "measure", fixed: bool = False, path: Path | None = None) -> Plan | None:
        return plan_convolutions(sim, mode, 4, fixed, path)

    assert chosen(path=tmp_path / FILE) == Plan((), share) == Plan.read(tmp_path / FILE)
    assert chosen("auto") is chosen(fixed=True) is None
    seconds[share] = 0.96
    assert chosen() == Plan((), 1)
    assert chosen(path=tmp_path / FILE) == Plan((), share)  # as before it was resumed
    seconds[share] = 0.1
    monkeypatch.setattr(chunk_autotune, "free_bytes", lambda device: 1000)
    assert chosen() == Plan((), 1)


def test_clients_of_adapters_go_in_the_fastest_of_three_ways(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One after another, in one batch, by vmap; what was chosen is computed, and again when the run is resumed."""
    sim = world.simulation(fedavg(), lora_mlp, participation=Full(), chunk_size=1)
    model, num = sim.model, len(sim.shards.sizes)
    assert isinstance(model, Folded)
    looped, folded, by_vmap = Plan((), 1, IN_BATCH), Plan((), num, IN_BATCH), Plan((), num, VMAP)
    assert list(chunk_autotune._choices(sim)) == [looped, folded, by_vmap]
    seconds = {looped: 1.0, folded: 0.9, by_vmap: 0.8}
    needed = num * client_bytes(model, sim.dataset.input_shape, 4)
    tried = []

    def taken(_: object, one: Plan) -> float:
        tried.append(one)
        return seconds[one]

    def spied(name: str, own: Callable[..., object]) -> Callable[..., object]:
        return lambda *given, **named: ways.append(name) or own(*given, **named)

    ways: list[str] = []
    monkeypatch.setattr(Folded, "_folded", spied("_folded", Folded._folded))
    monkeypatch.setattr(functional, "vmap", spied("vmap", functional.vmap))
    monkeypatch.setattr(chunk_autotune, "_seconds", taken)

    def chosen(path: Path | None = None) -> Plan | None:
        tried.clear()
        return plan_convolutions(sim, "measure", 4, False, path)

    for wanted in (by_vmap, folded, looped):
        path = tmp_path / wanted.client_form / str(wanted.chunk_size) / FILE
        path.parent.mkdir(parents=True)
        seconds[wanted] = 0.1
        assert chosen(path) == Plan((), wanted.chunk_size, wanted.client_form) == Plan.read(path)
        assert tried == [looped, folded, by_vmap]
        assert model.client_form == IN_BATCH
        seconds |= dict.fromkeys(seconds, 5.0)
        again = chosen(path)
        assert again == Plan((), wanted.chunk_size, wanted.client_form)
        assert not tried
        ways.clear()
        planned = again.applied_to(sim)
        assert planned.chunk_size == wanted.chunk_size
        planned.attempt(0, planned.init(), planned.cohort(0), Ledger())
        assert ("_folded" in ways, "vmap" in ways) == (wanted == folded, wanted == by_vmap)
        model.client_form = IN_BATCH
    for free, fitting in ((2 * 3 * needed, [looped, folded, by_vmap]), (2 * needed, [looped, folded]), (1, [])):
        monkeypatch.setattr(chunk_autotune, "free_bytes", lambda _, free=free: free)
        assert chosen() == Plan((), 1, IN_BATCH)
        assert tried == fitting
    monkeypatch.undo()
    model.vmap_refused = True
    assert list(chunk_autotune._choices(sim)) == [looped, folded]
    assert chosen() is not None


def test_a_form_that_runs_out_of_memory_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = world.simulation(fedavg(), lora_mlp, participation=Full(), chunk_size=1)

    monkeypatch.setattr(Folded, "_folded", raising(torch.OutOfMemoryError("no memory is left")))
    assert chunk_autotune._seconds(sim, Plan((), len(sim.shards.sizes), IN_BATCH)) == math.inf


CPU = torch.device("cpu")
KEY = Key(("chunking",))


def test_activations_are_those_of_one_sample():
    model = build(mlp, KEY, (64,), 10, "classification")
    assert num_activations(model, (64,)) == 64 + 64 + 32 + 32 + 10  # input, Flatten, Linear, ReLU, Linear
    assert client_bytes(model, (64,), 10) == 4 * (6 * 2_410 + 3 * 10 * 202)


def test_a_network_that_takes_no_lone_sample_has_the_same_activations():
    tracked, untracked = (
        build(
            lambda kept=kept: nn.Sequential(
                nn.Linear(64, 6), nn.BatchNorm1d(6, track_running_stats=kept), nn.GELU(), nn.Linear(6, 10)
            ),
            KEY,
            (64,),
            10,
            "classification",
        )
        for kept in (True, False)
    )
    assert num_activations(untracked, (64,)) == num_activations(tracked, (64,)) == 64 + 6 + 6 + 6 + 10


def test_chunk_size_on_a_cpu():
    lenet = build(lenet5, KEY, (1, 28, 28), 10, "classification")
    assert chunk_size(lenet, CPU, (1, 28, 28), 64) == 1
    perceptron = build(mlp, KEY, (64,), 10, "classification")
    size = chunk_size(perceptron, CPU, (64,), 10)
    assert size == CACHE_BYTES // (4 * (2_410 + 2_020))
    assert chunk_size(perceptron, CPU, (64,), 10**9) == 1


@looped("kind", [None, Functional])
def test_threads_over_chunks_give_the_same_gradients(kind):
    model = build(lenet5, KEY, (1, 28, 28), 10, "classification")
    if kind is not None:
        model = kind(model.module, model.loss, (1, 28, 28))
    generator = torch.Generator().manual_seed(5)
    theta, stats = rows(model, 6, generator)
    x, y = batch(6, 2, (1, 28, 28), 10, "classification", generator)

    def one(client: int) -> torch.Tensor:
        at = slice(client, client + 1)
        return model.gradient(theta[at], Batch(x[at], y[at], None, stats[at])).grad

    with ThreadPoolExecutor(2, initializer=lambda: torch.set_num_threads(1)) as pool:
        threaded = torch.cat(list(pool.map(one, range(6))))
    assert_close(threaded, torch.cat([one(client) for client in range(6)]))


def test_allocator_answers():
    assert isinstance(keep_freed_memory(), bool)
