"""The engine's own promises: FedAvg equals averaging by hand, weights, evaluation, states; what diverges or grows."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Models, Setup
from fedcomp.algorithm.fedsparsify import FedSparsify
from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import flatten, put_rows, take_rows
from fedcomp.memory import check as memory
from fedcomp.memory.check import check_memory, state_bytes
from fedcomp.simulation.async_metrics import to_host
from fedcomp.simulation.divergence import Diverged, DivergenceMonitor, MemoryGrowthMonitor, check_finite, has_diverged
from fedcomp.simulation.evaluation import metrics_of
from fedcomp.simulation.monte_carlo.study import MonteCarloStudy, repetition_key
from fedcomp.wire import Ledger, WireLink
from tests.conformance import world
from tests.left import folder_of, record
from tests.looped import looped
from tests.parts import QSGD, Codec, Compressor, Dense, ErrorFeedback, FedAvg, MRCSign, ServerSgd, Sgd, TopK, Uniform
from tests.raising import raising

DENSE = Compressor(Dense())
FULL_BATCH = Sgd(lr=0.1, batch_size=1000)


def _set(module: torch.nn.Module, theta: torch.Tensor) -> None:
    torch.nn.utils.vector_to_parameters(theta.clone(), module.parameters())


@looped("weights", ["samples", "uniform"])
def test_fedavg_is_the_weighted_mean_of_plain_training(weights: str) -> None:
    sim = world.simulation(FedAvg(FULL_BATCH, ServerSgd(), DENSE, DENSE, weights), participation=world.FULL)
    start = sim.init()
    after, result = sim.round(0, start, Ledger())

    module, total, ends = world.mlp(), torch.zeros_like(start.theta), torch.tensor(world.SIZES).cumsum(0).tolist()
    losses = []
    for size, end in zip(world.SIZES, ends):
        _set(module, start.theta)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        x, y = sim.dataset.train.x[end - size : end], sim.dataset.train.y[end - size : end]
        loss = torch.nn.functional.cross_entropy(module(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        share = size / sum(world.SIZES) if weights == "samples" else 1 / len(world.SIZES)
        total += share * torch.nn.utils.parameters_to_vector(module.parameters()).detach()
    assert torch.allclose(after.theta, total, atol=1e-6)
    assert result.metrics["train/loss"].tolist() == pytest.approx(losses, rel=1e-5)


@looped("weights", ["samples", "uniform"])
def test_batch_norm_statistics_are_averaged_by_weight(weights: str) -> None:
    algorithm = FedAvg(Sgd(lr=1e-9, batch_size=1000), ServerSgd(), DENSE, DENSE, weights)
    sim = world.simulation(algorithm, world.with_batch_norm, world.FULL)
    start = sim.init()
    after, _ = sim.round(0, start, Ledger())
    module = world.with_batch_norm()
    _set(module, start.theta)
    linear, norm = module[0], module[1]
    assert isinstance(norm, torch.nn.BatchNorm1d)
    total, ends = torch.zeros_like(start.stats), torch.tensor(world.SIZES).cumsum(0).tolist()
    for size, end in zip(world.SIZES, ends):
        x = linear(sim.dataset.train.x[end - size : end]).detach()
        if size == 1:  # a sample alone has no variance, for which torch raises: it counts as 0
            stats = torch.cat([norm.momentum * x[0], (1 - norm.momentum) * torch.ones(4)])
        else:
            norm.reset_running_stats()
            norm.train()(x)
            stats = torch.cat([norm.running_mean, norm.running_var])
        total += stats * (size / sum(world.SIZES) if weights == "samples" else 1 / len(world.SIZES))
    assert torch.allclose(after.stats, total, atol=1e-6)


def test_evaluation_averages_over_models() -> None:
    sim = world.simulation(FedAvg(FULL_BATCH, ServerSgd(), DENSE, DENSE))
    first, second = sim.init().theta, world.run(sim).theta
    stats = torch.zeros(2, 0)
    both, *single = to_host(
        metrics_of({"test": Models(torch.stack([first, second]), stats)}, sim.model, sim.dataset),
        *[metrics_of({"x": Models(theta[None], stats[:1])}, sim.model, sim.dataset) for theta in (first, second)],
    )
    assert both["test/loss"] == pytest.approx(sum(line["x/loss"] for line in single) / 2)
    module = world.mlp()
    _set(module, second)
    outputs = module(sim.dataset.test.x)
    assert single[1]["x/accuracy"] == (outputs.argmax(1) == sim.dataset.test.y).double().mean().item()
    loss = torch.nn.functional.cross_entropy(outputs, sim.dataset.test.y)
    assert single[1]["x/loss"] == pytest.approx(loss.item(), rel=1e-6)


def test_every_round_draws_its_own_cohort() -> None:
    sim = world.simulation(FedAvg(FULL_BATCH, ServerSgd(), DENSE, DENSE), participation=Uniform(2))
    assert len({tuple(sorted(sim.cohort(index).clients)) for index in range(20)}) > 3


@looped("value", [float("inf"), -float("inf"), float("nan")])
def test_a_test_metric_that_is_not_finite_ends_the_run(value: float) -> None:
    check_finite(0, {"test/loss": value})
    with pytest.raises(Diverged, match="round 3: the test loss of the server's model is") as caught:
        check_finite(3, {"train/loss": 1.0, "test/loss": value})
    assert has_diverged(str(caught.value))


def test_watch_names_round_client_and_remedy() -> None:
    monitor = DivergenceMonitor()
    cohort = Cohort.of([2, 5, 7], torch.ones(3))
    fine = {"train/loss": torch.tensor([1.0, 1e38, 3e38]), "estimate/excess": torch.tensor(float("nan"))}
    monitor.add(3, cohort, fine)
    bad = torch.tensor([1.0, float("nan"), float("inf")])
    with pytest.raises(Diverged, match="round 4: the loss of client 5 and 1 more is nan; lower client.lr"):
        monitor.add(4, cohort, {"train/loss": bad})
    scalar = {"train/loss": bad[:1].expand(3), "message/scalar": torch.tensor([0.0, 1.0, float("inf")])}
    with pytest.raises(Diverged, match="round 5: the message/scalar of client 7 is inf; lower client.lr"):
        monitor.add(5, cohort, scalar)


def test_watch_names_the_repetition_and_counts_its_clients_alone() -> None:
    cohort, nan = Cohort.of([2, 5, 0, 2, 5], torch.ones(5)), float("nan")
    says = "round 1, repetition 1 of 2 with clients: the loss of client 2 and 1 more is nan;"
    with pytest.raises(Diverged, match=says):
        DivergenceMonitor().add(1, cohort, {"train/loss": torch.tensor([1.0, 1.0, 1.0, nan, nan])}, (2, 3))
    with pytest.raises(Diverged, match="round 1, repetition 0 of 3 with clients: the loss of client 5 is nan;"):
        DivergenceMonitor().add(1, cohort, {"train/loss": torch.tensor([1.0, nan, nan, nan, nan])}, (2, 1, 2))


@looped("algorithm", [FedAvg(Sgd(lr=1e38, steps=1), ServerSgd(), DENSE, DENSE), FedSparsify(Sgd(lr=1e38, steps=1))])
def test_update_that_is_not_finite_is_named_though_its_loss_is(algorithm: Algorithm) -> None:
    sim = world.simulation(algorithm)
    _, result = sim.round(0, sim.init(), Ledger())
    assert torch.isfinite(result.metrics["train/loss"]).all()
    line = rf"round 1: the update/norm of client {result.cohort.clients[0]} and 2 more is inf"
    with pytest.raises(Diverged, match=line):
        DivergenceMonitor().add(1, result.cohort, result.metrics)


@looped("codec", [MRCSign(), QSGD(levels=100_000)])
def test_a_codec_that_fails_does_not_hide_what_diverged(codec: Codec) -> None:
    algorithm = FedAvg(Sgd(lr=1e35, batch_size=4, steps=4), ServerSgd(), Compressor(codec), DENSE)
    sim = world.simulation(algorithm, link=WireLink)
    with pytest.raises(Diverged, match=r"round 1: the loss of client \d.* is nan; lower client.lr") as caught:
        sim.round(0, sim.init(), Ledger())
    assert caught.value.__cause__ is not None
    assert has_diverged(str(caught.value))
    assert not has_diverged("cannot write metrics.jsonl: No space left on device; free the place")


@looped("lr, line", [(0.1, "^no message today$"), (1e38, "^round 1: the update/norm of client")])
def test_a_round_that_fails_of_something_else_says_so(lr: float, line: str) -> None:
    class Broken(Dense):
        encode = raising(ValueError("no message today"))

    sim = world.simulation(FedAvg(Sgd(lr=lr, steps=1), ServerSgd(), Compressor(Broken()), DENSE))
    with pytest.raises(ValueError, match=line):
        sim.round(0, sim.init(), Ledger())


def test_state_bytes_are_counted_without_allocating() -> None:
    algorithm = FedAvg(FULL_BATCH, ServerSgd(), Compressor(TopK(0.1), ErrorFeedback()), DENSE)
    sim = world.simulation(algorithm)
    parts = state_bytes(sim, 10**9)
    assert parts["uplink.sender"] == 4 * 10**9 * sim.model.dim
    assert parts["theta"] == 4 * sim.model.dim
    assert check_memory(sim, 3, 4, torch.device("cpu")) is None


def test_a_state_is_made_to_be_weighed_only_where_it_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    devices: list[str] = []

    class Seen(FedAvg):
        def init(self, theta, stats, setup):
            devices.append(theta.device.type)
            return super().init(theta, stats, setup)

    algorithm = Seen(FULL_BATCH, ServerSgd(), Compressor(TopK(0.1), ErrorFeedback()), DENSE)
    sim = world.simulation(algorithm)
    devices.clear()
    made = state_bytes(sim, 3)
    monkeypatch.setattr(memory, "MOST", 4 * sim.model.dim)  # of theta alone
    assert state_bytes(sim, 3) == made
    assert devices == ["cpu", "cpu", "meta"]


FEEDBACK = FedAvg(Sgd(lr=0.1, steps=1), ServerSgd(), Compressor(TopK(0.2), ErrorFeedback()), Compressor(Dense()))


@dataclass(frozen=True)
class CountsState:
    theta: Tensor
    rounds: Tensor
    twice: Tensor


@dataclass(frozen=True)
class Counts(Algorithm):
    """Counts each client's rounds by 1 and by 2, from the same zeros."""

    weights = "uniform"

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> CountsState:
        zeros = torch.zeros(setup.num_clients, 2)
        return CountsState(theta, zeros, zeros)

    def round(self, state: CountsState, cohort: Cohort, ctx: Context):
        rounds = put_rows(state.rounds, cohort, take_rows(state.rounds, cohort) + 1)
        twice = put_rows(state.twice, cohort, take_rows(state.twice, cohort) + 2)
        return CountsState(state.theta + 1, rounds, twice), {}


@looped("study", [False, True])
@looped("algorithm", [FEEDBACK, Counts()])
def test_a_state_that_is_given_up_stays_where_it_was(algorithm: Algorithm, study: bool) -> None:
    sim = world.simulation(algorithm)
    three = tuple(replace(sim, key=repetition_key(sim.key, number)) for number in range(3))
    runner = MonteCarloStudy(three) if study else sim
    kept, given, places = runner.init(), runner.init(), set[tuple[int, ...]]()
    for index in range(4):
        kept, _ = runner.round(index, kept, Ledger())
        given, _ = runner.round(index, given, Ledger(), donate_state=True)
        rows = [tensor for tensor in flatten(given).values() if tensor.dim() > 1 and tensor.numel()]
        places |= {tuple(tensor.data_ptr() for tensor in rows)} if index else set()
    assert all(torch.equal(tensor, flatten(kept)[name]) for name, tensor in flatten(given).items())
    assert len(places) == 1


DATA = ("num_clients=20", "partition=dirichlet", "partition.alpha=0.1")
CASE = ("algorithm=bicompfl_cfl", *DATA, "rounds=40", "eval_every=10", "pictures=false", "device=cpu")
"""Updates of length 0.9 whose messages, signs of 0.005, have length 0.25."""


def _line(memory: float, update: float, suffix: str = "") -> dict[str, float]:
    return {f"memory/norm{suffix}": memory, f"update/norm{suffix}": update, "test/loss": 1.0}


def test_each_memory_is_named_once() -> None:
    growth = MemoryGrowthMonitor()
    assert growth.check(0, {"test/loss": 1.0}) == []
    assert growth.check(1, _line(9.9, 1.0)) == growth.check(2, _line(0.0, 0.0)) == []
    (said,) = growth.check(3, _line(21.0, 2.0))
    assert said.startswith("round 3: the memory of errors of the clients is 10.5 times as long as the longest update")
    assert "(memory/norm 21, update/norm at most 2)" in said
    assert said.endswith("or take EF21, which stays bounded (algorithm=bicompfl_cfl algorithm.ef21=true)")
    assert "\n" not in said
    assert growth.check(4, _line(100.0, 1.0)) == []
    (other,) = growth.check(5, _line(100.0, 1.0) | _line(3.0, 0.2, "_down"))
    assert "memory of errors of the server is 15 times as long" in other
    assert growth.check(6, _line(100.0, 1.0) | _line(3.0, 0.2, "_down")) == []


def test_a_memory_that_stays_while_updates_shrink_is_not_reported() -> None:
    growth = MemoryGrowthMonitor()
    assert growth.check(1, _line(4.0, 1.0)) == growth.check(2, _line(4.0, 0.01)) == []
    assert len(growth.check(3, _line(10.1, 0.01))) == 1


def test_lines_before_a_resume_count_and_are_not_reported_again() -> None:
    assert MemoryGrowthMonitor([_line(4.0, 1.0)]).check(2, _line(4.0, 0.01)) == []
    assert MemoryGrowthMonitor([_line(11.0, 1.0)]).check(2, _line(12.0, 1.0)) == []


def _run(fedcomp: Callable[..., int], folder: Path, *more: str) -> tuple[list[dict[str, float]], str]:
    """The record and the log of the stated case."""
    assert fedcomp(*CASE, f"output_root={folder}", *more) == 0
    return record(folder), (folder_of(folder) / "run.log").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("more", [(), ("repeats=2", "rounds=20")], ids=["once", "study"])
def test_error_feedback_outgrows_messages_of_a_fixed_size(fedcomp, tmp_path: Path, capsys, more) -> None:
    lines, log = _run(fedcomp, tmp_path, "compressor.feedback=error", *more)
    found = [line["memory/norm"] for line in lines[1:]]
    steps = [later - earlier for earlier, later in pairwise(found)]
    assert all(step > 5 for step in steps), found  # 0.9 a round, and no end
    assert log.count("memory of errors of the clients") == 1
    assert capsys.readouterr().err.count("memory of errors of the clients") == 1


def test_ef21_stays_bounded_in_the_same_case(fedcomp, tmp_path: Path, capsys) -> None:
    lines, log = _run(fedcomp, tmp_path, "algorithm.ef21=true")
    assert all(line["memory/norm"] < 1 for line in lines[1:])
    assert lines[-1]["test/accuracy"] > 0.5
    assert "memory of errors" not in log + capsys.readouterr().err
