"""R2/R1 of a round's vectors: where FedAvg says it, of what, in repetitions too."""

from dataclasses import dataclass, field, replace

import pytest
import torch

from fedcomp.algorithm.updates.metrics import correlation
from fedcomp.simulation.monte_carlo.study import MonteCarloStudy, repetition_key
from fedcomp.wire import Ledger
from tests.conformance import world
from tests.parts import Bernoulli, Compressor, Dense, FedAvg, RandK, ServerSgd, Sgd, Spatial, Temporal, Uniform

SGD, STEP, DENSE = Sgd(lr=0.1, batch_size=4), ServerSgd(), Compressor(Dense())
CODEC = RandK(0.4, places="index")
SPATIAL = Compressor(CODEC, estimator=Spatial("avg"))
NAME = "vectors/correlation"
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")


@dataclass(frozen=True)
class Heard(RandK):
    """Keeps what it is given."""

    vectors: list[torch.Tensor] = field(default_factory=list)

    def encode(self, x, common, sender_key):
        self.vectors.append(x.clone())
        return super().encode(x, common, sender_key)


def _metrics(uplink: Compressor, **options):
    sim = world.simulation(FedAvg(SGD, STEP, uplink, DENSE), **options)
    _, result = sim.round(0, sim.init(), Ledger())
    return result.cohort, result.metrics


@pytest.mark.parametrize("module", [world.mlp, world.with_batch_norm], ids=["every column", "but normalisation"])
def test_it_is_that_of_what_the_codec_is_given(module) -> None:
    heard = Heard(0.4, places="index")
    uplink = Compressor(heard, estimator=Spatial("avg"))
    cohort, metrics = _metrics(world.spared(uplink) if module is world.with_batch_norm else uplink, module=module)
    (x,) = heard.vectors
    assert metrics[NAME].shape == ()
    assert float(metrics[NAME]) == pytest.approx(float(correlation(x, cohort.weight)), abs=1e-12)
    assert 0 < float(metrics[NAME]) < cohort.size - 1


@pytest.mark.parametrize("uplink", [DENSE, Compressor(CODEC), Compressor(CODEC, estimator=Temporal())], ids=str)
def test_others_do_not_work_it_out(uplink, monkeypatch) -> None:
    monkeypatch.setattr("fedcomp.algorithm.updates.metrics.correlation", None)
    assert NAME not in _metrics(uplink)[1]


def test_one_client_and_nobody() -> None:
    assert float(_metrics(SPATIAL, participation=Uniform(num_participants=1))[1][NAME]) == pytest.approx(0, abs=1e-9)
    assert _metrics(SPATIAL, participation=world.NOBODY)[1] == {}


def test_rows_of_nobody_change_nothing() -> None:
    x, weight = torch.randn(3, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([0.2, 0.5, 0.3])
    padded = torch.cat((x, torch.ones(2, 8))), torch.cat((weight, torch.zeros(2)))
    assert float(correlation(*padded)) == pytest.approx(float(correlation(x, weight)), rel=1e-5)


@pytest.mark.parametrize(("participation", "together"), [(world.SOME, True), (Bernoulli(0.5), False)], ids=str)
def test_a_study_has_that_of_each_repetition(participation, together) -> None:
    first = world.simulation(FedAvg(SGD, STEP, SPATIAL, DENSE), participation=participation)
    repetitions = tuple(replace(first, key=repetition_key(first.key, number)) for number in range(3))
    study = MonteCarloStudy.of(repetitions)
    assert (study.vmapped is not None) is together
    _, outcome = study.round(0, study.init(), Ledger())
    alone = [one.round(0, one.init(), Ledger())[1].metrics for one in repetitions]
    assert outcome.shared[NAME].tolist() == pytest.approx([float(own[NAME]) for own in alone if own], rel=1e-4)
