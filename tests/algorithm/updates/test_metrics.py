"""What a round says of its updates: the bias of means of adapters, R2/R1, the length of every memory of errors."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from fedcomp.algorithm.bicompfl.bicompfl_cfl import BiCompFLCFL
from fedcomp.algorithm.bidirectional.cser import CSER
from fedcomp.algorithm.bidirectional.doublesqueeze import DoubleSqueeze
from fedcomp.algorithm.bidirectional.liec import LIEC
from fedcomp.algorithm.bidirectional.m3 import M3
from fedcomp.algorithm.bidirectional.memsgd import MemSGD
from fedcomp.algorithm.bidirectional.neolithic import Neolithic
from fedcomp.algorithm.contract import Algorithm
from fedcomp.algorithm.fedmrn import FedMRN
from fedcomp.algorithm.updates.adapter_bias import adapter_bias
from fedcomp.algorithm.updates.metrics import correlation
from fedcomp.compressor import Compressor
from fedcomp.compressor.estimators.spatial import Spatial
from fedcomp.compressor.estimators.temporal import Temporal
from fedcomp.core.cohort import Cohort
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.model.contract import Model
from fedcomp.participation.bernoulli import Bernoulli
from fedcomp.participation.uniform import Uniform
from fedcomp.simulation.monte_carlo.study import MonteCarloStudy, repetition_key
from fedcomp.wire import Ledger
from tests.conformance import world
from tests.looped import looped
from tests.lora_networks import lora_mlp, lora_mlp_b, lora_mlp_head
from tests.parts import DENSE, Dense, ErrorFeedback, FedAvg, MRCSign, PermK, RandK, ServerSgd, Sgd, Sign, TopK, spared
from tests.rounds import Round, one_round, rounds

TENSORS = Model(lora_mlp_head()).tensors
LAYOUT = LoraLayout.of(TENSORS)


def test_it_is_the_direct_difference() -> None:
    generator = torch.Generator().manual_seed(0)
    start, change = torch.randn(43, generator=generator), 0.3 * torch.randn(3, 43, generator=generator)
    cohort = Cohort.of((0, 1, 2), torch.tensor([0.4, 1.0, 0.6]))
    p = (cohort.weight / 2).double()
    ((a, b),), ((a0, b0),) = LAYOUT.factors((start + change).double()), LAYOUT.factors(start[None].double())
    exact = sum(p[k] * b[k] @ a[k] for k in range(3))
    mean = sum(p[k] * b[k] for k in range(3)) @ sum(p[k] * a[k] for k in range(3))
    wanted = float((exact - mean).norm() / (exact - b0[0] @ a0[0]).norm())
    assert float(adapter_bias(start, change, cohort, TENSORS)["adapter/bias"]) == pytest.approx(wanted, rel=1e-6)
    assert wanted > 0.01
    alone = Cohort.of((1,), torch.ones(1))
    assert float(adapter_bias(start, change[:1], alone, TENSORS)["adapter/bias"]) == 0


def test_fedavg_says_it_where_both_factors_are_trained() -> None:
    fedavg = FedAvg(Sgd(lr=0.2, batch_size=4, epochs=3), ServerSgd(), Compressor(Dense()), Compressor(Dense()))
    for module, said in ((lora_mlp, True), (lora_mlp_b, False), (world.mlp, False)):
        metrics = one_round(world.simulation(fedavg, module)).metrics
        assert ("adapter/bias" in metrics) is said
        if said:
            assert 0 < float(metrics["adapter/bias"]) < 1


SGD, STEP = Sgd(lr=0.1, batch_size=4), ServerSgd()
CODEC = RandK(0.4, places="index")
SPATIAL = Compressor(CODEC, estimator=Spatial("avg"))
NAME = "vectors/correlation"


@dataclass(frozen=True)
class Heard(RandK):
    """Keeps what it is given."""

    vectors: list[torch.Tensor] = field(default_factory=list)

    def encode(self, x, common, sender_key):
        self.vectors.append(x.clone())
        return super().encode(x, common, sender_key)


def _first(uplink: Compressor, **options) -> Round:
    return one_round(world.simulation(FedAvg(SGD, STEP, uplink, DENSE), **options))


@looped("module", [world.mlp, world.with_batch_norm])
def test_it_is_that_of_what_the_codec_is_given(module) -> None:
    heard = Heard(0.4, places="index")
    uplink = Compressor(heard, estimator=Spatial("avg"))
    one = _first(spared(uplink) if module is world.with_batch_norm else uplink, module=module)
    (x,) = heard.vectors
    assert one.metrics[NAME].shape == ()
    assert float(one.metrics[NAME]) == pytest.approx(float(correlation(x, one.cohort.weight)), abs=1e-12)
    assert 0 < float(one.metrics[NAME]) < one.cohort.size - 1


@pytest.mark.parametrize("uplink", [DENSE, Compressor(CODEC), Compressor(CODEC, estimator=Temporal())], ids=str)
def test_others_do_not_work_it_out(uplink, monkeypatch) -> None:
    monkeypatch.setattr("fedcomp.algorithm.updates.metrics.correlation", None)
    assert NAME not in _first(uplink).metrics


def test_one_client_and_nobody() -> None:
    alone = _first(SPATIAL, participation=Uniform(num_participants=1))
    assert float(alone.metrics[NAME]) == pytest.approx(0, abs=1e-9)
    assert _first(SPATIAL, participation=world.NOBODY).metrics == {}


def test_rows_of_nobody_change_nothing() -> None:
    x, weight = torch.randn(3, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([0.2, 0.5, 0.3])
    padded = torch.cat((x, torch.ones(2, 8))), torch.cat((weight, torch.zeros(2)))
    assert float(correlation(*padded)) == pytest.approx(float(correlation(x, weight)), rel=1e-5)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize(("participation", "together"), [(world.SOME, True), (Bernoulli(0.5), False)], ids=str)
def test_a_study_has_that_of_each_repetition(participation, together) -> None:
    first = world.simulation(FedAvg(SGD, STEP, SPATIAL, DENSE), participation=participation)
    repetitions = tuple(replace(first, key=repetition_key(first.key, number)) for number in range(3))
    study = MonteCarloStudy.of(repetitions)
    assert (study.vmapped is not None) is together
    _, outcome = study.round(0, study.init(), Ledger())
    alone = [one_round(one).metrics for one in repetitions]
    assert outcome.shared[NAME].tolist() == pytest.approx([float(own[NAME]) for own in alone if own], rel=1e-4)


CLIENT, SERVER = Sgd(lr=0.1, batch_size=4), ServerSgd(0.5)
SIGN = Compressor(Sign())
TOPK, FED = Compressor(TopK(0.2, "index")), Compressor(Sign(), ErrorFeedback())
CODED = Compressor(MRCSign(block=8, value=0.05), ErrorFeedback())
UP, DOWN = "memory/norm", "memory/norm_down"

CASES: dict[str, tuple[Algorithm, set[str]]] = {
    "fedavg": (FedAvg(CLIENT, SERVER, SIGN, DENSE), set()),
    "up": (FedAvg(CLIENT, SERVER, FED, DENSE), {UP}),
    "fading": (FedAvg(CLIENT, SERVER, Compressor(Sign(), ErrorFeedback(0.5)), DENSE), {UP}),
    "down": (FedAvg(CLIENT, SERVER, SIGN, FED), {DOWN}),
    "beside": (FedAvg(CLIENT, SERVER, spared(FED), spared(FED)), {UP, DOWN}),
    "memsgd": (MemSGD(CLIENT, SERVER, TOPK, DENSE), {UP}),
    "doublesqueeze": (DoubleSqueeze(CLIENT, SERVER, SIGN, SIGN), {UP, DOWN}),
    "neolithic": (Neolithic(CLIENT, SERVER, SIGN, SIGN), {UP, DOWN}),
    "cser": (CSER(CLIENT, SERVER, TOPK, FED, 3), {UP, DOWN}),
    "liec": (LIEC(CLIENT, SERVER, TOPK, SIGN, 3), {DOWN}),
    "cfl": (BiCompFLCFL(CLIENT, SERVER, CODED), {UP}),
    "cfl-ef21": (BiCompFLCFL(CLIENT, SERVER, TOPK, ef21=True), {UP}),
    "m3-ef21": (M3(CLIENT, SERVER, TOPK, Compressor(PermK()), differences="ef21", uplink_entries="compressor"), {UP}),
    "m3": (M3(CLIENT, SERVER, Compressor(TopK()), Compressor(PermK())), set()),
    "fedmrn": (FedMRN(CLIENT, SERVER, FED), {DOWN}),
}


def _rows(state: Any, algorithm: Algorithm) -> torch.Tensor | None:
    """What the method itself keeps of its clients' errors; None where only the updates tell."""
    if isinstance(algorithm, CSER):
        return state.error
    return state.uplink.sender if hasattr(state, "uplink") and state.uplink.sender.numel() else None


@looped("name", CASES)
def test_lengths_are_those_of_the_memories(name: str) -> None:
    algorithm, wanted = CASES[name]
    for one in rounds(world.simulation(algorithm, world.with_batch_norm if name == "beside" else world.mlp), 3):
        assert {key for key in one.metrics if key.startswith("memory/")} == wanted
        rows = _rows(one.after, algorithm)
        if UP in wanted and rows is not None:
            assert torch.allclose(one.metrics[UP], rows[one.cohort.ids].norm(dim=1))
        if UP in wanted:
            assert one.metrics[UP].shape == one.metrics["update/norm"].shape == (one.cohort.size,)
        if DOWN in wanted:
            assert torch.allclose(one.metrics[DOWN], one.after.downlink.sender[0].norm())
            assert float(one.metrics["update/norm_down"]) > 0
    if wanted and name != "liec":  # whose third round empties it
        assert all(float(one.metrics[key].max()) > 0 for key in wanted)


@looped("sends, received", [("step", 1.0), ("mean_update", 2.0)])
def test_what_the_server_sent_is_the_step_or_the_mean(sends: str, received: float) -> None:
    one = one_round(world.simulation(FedAvg(CLIENT, ServerSgd(0.5), DENSE, FED, sends=sends)))
    arrived = received * (one.after.theta - one.before.theta)
    torch.testing.assert_close(one.metrics["update/norm_down"], (arrived + one.after.downlink.sender[0]).norm())


def test_what_ef21_leaves_out_is_the_difference_to_what_everybody_knows() -> None:
    """With messages that lose nothing it is nothing, and what is left of a first message is at most the update."""
    for uplink, most in ((DENSE, 1e-6), (TOPK, 1.0)):
        for algorithm in (
            BiCompFLCFL(CLIENT, SERVER, uplink, ef21=True),
            M3(CLIENT, SERVER, uplink, DENSE, p_up=0.0, differences="ef21", uplink_entries="compressor"),
        ):
            metrics = one_round(world.simulation(algorithm)).metrics
            assert (metrics[UP] <= most * metrics["update/norm"]).all()
            if uplink is TOPK and isinstance(algorithm, BiCompFLCFL):
                assert (metrics[UP] > 0).all()
