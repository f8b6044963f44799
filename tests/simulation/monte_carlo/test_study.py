"""Repetitions in one run: together as one after another, each as a run of its own, in every round, after a resume."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedcomp.algorithm.bicompfl.bicompfl_gr import BiCompFLGR
from fedcomp.algorithm.bidirectional.doublesqueeze import DoubleSqueeze
from fedcomp.algorithm.bidirectional.liec import LIEC
from fedcomp.algorithm.fedpm import FedPM
from fedcomp.algorithm.heterogeneity.scaffold import Scaffold
from fedcomp.core.pytree import flatten, map_tensors
from fedcomp.random.keys import Key
from fedcomp.records.checkpoint import Checkpoint, load, save
from fedcomp.simulation.async_metrics import to_host
from fedcomp.simulation.monte_carlo.study import MonteCarloStudy, repetition_key
from fedcomp.simulation.monte_carlo.vmap_keys import NotVmappable
from fedcomp.simulation.monte_carlo.vmapped import VmappedRepetitions
from fedcomp.wire import Ledger, WireLink
from tests.conformance import world
from tests.looped import looped
from tests.parts import (
    DENSE,
    QSGD,
    Adam,
    Bernoulli,
    Compressor,
    ErrorFeedback,
    FedAvg,
    PermK,
    RandK,
    ServerAdam,
    ServerSgd,
    Sgd,
    Sign,
    Spatial,
    StochasticSign,
    Svrg,
    Temporal,
    TopK,
)

SGD, SVRG, STEP = Sgd(lr=0.1, batch_size=4), Svrg(lr=0.05, snapshots=2, inner_steps=2), ServerSgd()
SIGN, PLAIN = Compressor(Sign(), ErrorFeedback()), Compressor(Sign())
COINS = Bernoulli([0.9, 0.2, 0.5, 1.0, 0.3, 0.4, 0.1])
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")
TOGETHER = {
    "svrg-coins": (FedAvg(SVRG, STEP, DENSE, DENSE, "uniform"), {"participation": COINS}),
    "mostly-nobody": (FedAvg(SGD, STEP, DENSE, DENSE), {"participation": Bernoulli(0.1)}),
    "server-adam": (FedAvg(Adam(lr=0.01), ServerAdam(), DENSE, DENSE), {"participation": COINS}),
    "memories-at-the-server": (FedAvg(SGD, ServerSgd(0.5, 0.5), DENSE, SIGN), {}),
    "batch-norm": (FedAvg(SGD, STEP, DENSE, DENSE), {"module": world.with_batch_norm}),
    "draws": (FedAvg(SGD, STEP, Compressor(StochasticSign()), DENSE), {"participation": COINS}),
    "memories-at-both-ends": (DoubleSqueeze(SGD, STEP, SIGN, SIGN), {"participation": world.FULL}),
    "own-models": (LIEC(SGD, STEP, PLAIN, PLAIN, 2), {"participation": world.FULL}),
}
APART = {
    "memories-of-idle-clients": (FedAvg(SGD, STEP, SIGN, DENSE), {"participation": COINS}),
    "bytes": (FedAvg(SGD, STEP, DENSE, DENSE), {"link": WireLink}),
    "bits-of-the-data": (FedAvg(SGD, STEP, Compressor(TopK(0.3, "rice")), DENSE), {}),
    "shortest-coding": (FedAvg(SGD, STEP, Compressor(QSGD()), DENSE), {}),
    "large-models": (FedAvg(SGD, STEP, DENSE, DENSE), {"chunk_size": 2}),
}


def _repetitions(algorithm: Any, options: dict[str, Any], num: int = 3) -> tuple:
    first = world.simulation(algorithm, **options)
    return tuple(replace(first, key=repetition_key(first.key, number)) for number in range(num))


def _run(study: MonteCarloStudy, rounds: int, state: Any = None, first: int = 0) -> tuple[Any, Ledger, list]:
    ledger, lines = Ledger(), []
    state = study.init() if state is None else state
    for index in range(first, rounds):
        state, outcome = study.round(index, state, ledger)
        lines.append(study.evaluate(index + 1, state, outcome).line)
    return state, ledger, lines


def _assert_alike(one: tuple[Any, Ledger, list], other: tuple[Any, Ledger, list]) -> None:
    """Same states but for rounding, same counts of bits."""
    for name, tensor in flatten(other[0]).items():
        assert torch.allclose(flatten(one[0])[name], tensor, rtol=0, atol=1e-5), name
    assert one[1].counters() == other[1].counters()


@looped("name", [*TOGETHER, *APART])
def test_a_repetition_is_a_run_with_its_key(name: str) -> None:
    """And lines are the same whether repetitions go together or one after another."""
    repetitions = _repetitions(*(TOGETHER | APART)[name])
    study = MonteCarloStudy.of(repetitions)
    assert (study.vmapped is not None) == (name in TOGETHER)
    state, ledger, lines = _run(study, 4)
    spent = Ledger()
    for number, one in enumerate(repetitions):
        alone = world.run(one, last=4, ledger=spent)
        own = map_tensors(lambda tensor, at=number: tensor[at], state)
        for part, tensor in flatten(alone).items():
            assert torch.allclose(flatten(own)[part], tensor, rtol=0, atol=1e-5), part
    assert ledger.counters() == spent.counters()
    assert not torch.allclose(flatten(state)["theta"][0], flatten(state)["theta"][1], atol=1e-3)
    for line, wanted in zip(lines, _run(replace(study, vmapped=None), 4)[2] if study.vmapped else lines):
        assert line == pytest.approx(wanted, abs=1e-5)


def test_a_metric_of_rounds_in_which_all_take_part_is_logged_where_they_do_in_all_repetitions() -> None:
    options = {"participation": Bernoulli(0.95), "rounds": 12}
    repetitions = _repetitions(Scaffold(SGD, STEP, DENSE), options)
    everybody = [[one.cohort(index).size == world.NUM_CLIENTS for one in repetitions] for index in range(12)]
    assert {all(some) for some in everybody} == {True, False}
    assert {some[0] for some in everybody if not all(some)} == {True, False}
    lines = _run(MonteCarloStudy.of(repetitions), 12)[2]
    assert ["control/sum" in line for line in lines] == [all(some) for some in everybody]


def test_a_message_of_the_server_has_one_value_a_repetition() -> None:
    repetitions = _repetitions(BiCompFLGR(client=SGD, block=16, reconstruct=True), {"participation": world.FULL})
    (line,) = _run(MonteCarloStudy.of(repetitions), 1)[2]
    kl = [float(one.round(0, one.init(), Ledger())[1].metrics["mrc/kl_down"]) for one in repetitions]
    assert float(line["mrc/kl_down"]) == pytest.approx(sum(kl) / len(kl))


def test_repetition_0_has_the_runs_own_key() -> None:
    assert repetition_key(Key(("run", 3)), 0) == Key(("run", 3))
    assert len({repetition_key(Key(("run", 3)), number) for number in range(4)}) == 4


@dataclass(frozen=True)
class Sums:
    """An optimum from which a model is as far as its entries sum up to."""

    factor: float = 1.0

    def excess(self, theta: torch.Tensor) -> torch.Tensor:
        return self.factor * theta.sum(1).double()


def test_excess_is_the_mean_over_a_repetitions_models() -> None:
    theta, first = torch.arange(12.0).view(2, 3, 2), world.simulation(FedAvg(SGD, STEP, DENSE, DENSE))
    for optima, wanted in (((Sums(),) * 2, [5.0, 17.0]), ((Sums(), Sums(2.0)), [5.0, 34.0])):
        study = MonteCarloStudy(tuple(replace(first, optimum=optimum) for optimum in optima))
        assert study._excess(theta).tolist() == wanted


def test_each_repetition_trains_on_its_own_shards() -> None:
    repetitions = _repetitions(FedAvg(SGD, STEP, DENSE, DENSE), {"participation": COINS})
    shards = [replace(one.shards, order=one.shards.order.roll(9 * at)) for at, one in enumerate(repetitions)]
    study = MonteCarloStudy.of(tuple(replace(one, shards=own) for one, own in zip(repetitions, shards)))
    assert study.vmapped is not None
    (state, _, _), (other, _, _) = _run(study, 4), _run(replace(study, vmapped=None), 4)
    assert torch.allclose(state.theta, other.theta, rtol=0, atol=1e-5)
    assert not torch.allclose(state.theta[1:], _run(MonteCarloStudy(repetitions), 4)[0].theta[1:], rtol=0, atol=1e-2)


@dataclass(frozen=True)
class CountsRows(FedAvg):
    """A method that takes the rows that it sees for clients."""

    def round(self, state, cohort, ctx):
        new, metrics = super().round(state, cohort, ctx)
        return replace(new, theta=new.theta + 0.1 * len(cohort.ids)), metrics


@dataclass(frozen=True)
class Once(FedAvg):
    """A method that reads a number back from the third round on."""

    def round(self, state, cohort, ctx):
        if ctx.round >= 2:
            float(state.theta.sum())
        return super().round(state, cohort, ctx)


class Wordy(FedAvg):
    """A method of which vmap raises an error of several lines."""

    def round(self, state, cohort, ctx):
        if torch._C._functorch.is_batchedtensor(state.theta):
            raise TypeError("a line\nand another")
        return super().round(state, cohort, ctx)


def test_a_method_that_counts_rows_is_found_out() -> None:
    repetitions = _repetitions(CountsRows(SGD, STEP, DENSE, DENSE), {"participation": COINS})
    assert VmappedRepetitions.of(repetitions, pads=True).round(0, MonteCarloStudy(repetitions).init(), Ledger())
    assert MonteCarloStudy.of(repetitions).vmapped is None


FIRST_ALL = Bernoulli(1.0, schedule={4: 0.4})
MEMORIES = {
    "error": Compressor(Sign(), ErrorFeedback()),
    "temporal": Compressor(RandK(0.5, seed_cost="derived"), estimator=Temporal()),
    "spatial": Compressor(RandK(0.5, seed_cost="derived"), estimator=Spatial()),
    "permk": Compressor(PermK()),
    "dense": DENSE,
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", MEMORIES)
@pytest.mark.parametrize(
    ("coins", "rounds"),
    [(FIRST_ALL, 10), (Bernoulli(0.97), 30), (Bernoulli(0.6), 10), (Bernoulli(1.0, schedule={25: 0.4}), 30)],
    ids=str,
)
def test_cohorts_that_differ_in_size_later_than_in_the_rounds_that_are_tried(name, coins, rounds) -> None:
    """Rows that are nobody's must not be taken for a client's."""
    study = MonteCarloStudy.of(_repetitions(FedAvg(SGD, STEP, MEMORIES[name], DENSE), {"participation": coins}))
    _assert_alike(_run(study, rounds), _run(replace(study, vmapped=None), rounds))
    assert name != "dense" or study.vmapped is not None


def test_sizes_that_were_never_tried_go_one_after_another() -> None:
    repetitions = _repetitions(FedAvg(SGD, STEP, DENSE, DENSE), {"participation": Bernoulli(1.0, schedule={25: 0.4})})
    study = MonteCarloStudy.of(repetitions)
    assert study.vmapped is not None
    assert not study.vmapped.pads
    with pytest.raises(NotVmappable, match="differ in size"):
        study.vmapped.round(26, study.init(), Ledger())
    nobody = _repetitions(FedAvg(SGD, STEP, DENSE, DENSE), {"participation": Bernoulli(1e-9)})
    assert MonteCarloStudy.of(nobody).vmapped is None


def test_a_study_that_diverges_at_once_goes_one_after_another() -> None:
    """Where the value that is not finite is named."""
    repetitions = _repetitions(FedAvg(Sgd(lr=1e30, batch_size=4), STEP, DENSE, DENSE), {})
    assert MonteCarloStudy.of(repetitions).vmapped is None


def test_a_round_that_cannot_go_together_is_run_one_after_another_and_said_once(caplog) -> None:
    caplog.set_level("INFO", logger="fedcomp")
    study = MonteCarloStudy.of(_repetitions(Once(SGD, STEP, DENSE, DENSE), {}))
    assert study.vmapped is not None
    plain = MonteCarloStudy.of(_repetitions(FedAvg(SGD, STEP, DENSE, DENSE), {}))
    _assert_alike(_run(study, 5), _run(plain, 5))
    (line,) = [record.message for record in caplog.records]
    assert line.endswith("(vmap: It looks like you're calling .item() on a Tensor)")  # not what torch's developers ask
    caplog.clear()
    assert MonteCarloStudy.of(_repetitions(FedAvg(SGD, STEP, Compressor(QSGD()), DENSE), {})).vmapped is None
    (line,) = [record.message for record in caplog.records]
    torch_2_11 = "vmap cannot run the method (Batching rule not implemented for aten::view.dtype"
    reasons = "bits that depend on data", torch_2_11
    assert line.startswith(tuple(f"repetitions run one after another: {reason}" for reason in reasons))
    caplog.clear()
    assert MonteCarloStudy.of(_repetitions(Wordy(SGD, STEP, DENSE, DENSE), {})).vmapped is None
    (line,) = [record.message for record in caplog.records]
    assert line == "repetitions run one after another: all at once raises TypeError: a line"


@dataclass(frozen=True)
class Misspelt(FedAvg):
    """A method that is wrong, from some round on, in a way that has nothing to do with repetitions."""

    first: int = 0

    def round(self, state, cohort, ctx):
        if ctx.round >= self.first:
            raise KeyError("trian/loss")
        return super().round(state, cohort, ctx)

    def evaluation_models(self, state, key):
        raise KeyError("tset")


def test_an_error_of_the_method_itself_is_raised_where_it_happens(monkeypatch) -> None:
    """Not hidden by running the repetitions one after another, where it would only be met a second time."""
    with pytest.raises(KeyError, match="trian"):
        MonteCarloStudy.of(_repetitions(Misspelt(SGD, STEP, DENSE, DENSE), {}))
    study = MonteCarloStudy.of(_repetitions(Misspelt(SGD, STEP, DENSE, DENSE, first=3), {}))
    assert study.vmapped is not None
    monkeypatch.setattr("fedcomp.simulation.simulation.Simulation.round", lambda *_: pytest.fail("one after another"))
    with pytest.raises(KeyError, match="trian"):
        study.round(3, study.init(), Ledger())
    with pytest.raises(KeyError, match="tset"):
        study._deployed(3, study.init())


@looped("algorithm, up", [(FedAvg(SGD, STEP, DENSE, DENSE), 32), (FedPM(SGD, test="sample", test_samples=2), 1)])
def test_lines_are_means_and_variances_over_repetitions(algorithm: Any, up: int) -> None:
    """Also of models that are drawn anew for every test."""
    repetitions = _repetitions(algorithm, {})
    study = MonteCarloStudy.of(repetitions)
    state, outcome = study.round(0, study.init(), ledger := Ledger())
    line, each = (found := study.evaluate(1, state, outcome)).line, found.each
    alone = []
    for one in repetitions:
        after, result = one.round(0, one.init(), Ledger())
        (own,) = to_host(one.evaluate(1, after, result).line)
        alone.append(own)
    for name in ("test/loss", "test/accuracy", "train/loss"):
        values = torch.tensor([own[name] for own in alone], dtype=torch.float64)
        assert line[name] == pytest.approx(float(values.mean()), rel=1e-5)
        assert line[f"variance/{name}"] == pytest.approx(float(values.var()), rel=1e-4)
    assert each["test/loss"] == pytest.approx([own["test/loss"] for own in alone], rel=1e-5)
    spent = study.bits_metrics(ledger)
    assert spent["bits/uplink"] == ledger.counters()["uplink"] / 3
    assert spent["bpp/uplink"] == pytest.approx(up, rel=0.2)


def test_a_resumed_study_ends_bit_for_bit(tmp_path: Path) -> None:
    repetitions = _repetitions(FedAvg(SVRG, STEP, DENSE, DENSE), {"participation": COINS})
    unbroken, _, _ = _run(MonteCarloStudy.of(repetitions), 5)
    half, ledger, _ = _run(MonteCarloStudy.of(repetitions), 2)
    save(tmp_path / "checkpoint.pt", Checkpoint(2, half, ledger.counters(), 1.0), "hash")
    fresh = MonteCarloStudy.of(repetitions)
    loaded = load(tmp_path / "checkpoint.pt", fresh.init(), "hash")
    state, _, _ = _run(fresh, 5, loaded.state, first=2)
    assert all(torch.equal(tensor, flatten(state)[name]) for name, tensor in flatten(unbroken).items())
