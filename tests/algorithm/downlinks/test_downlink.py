"""Every downlink sends at one of the three places of a round, to those whom it says, and changes nothing elsewhere."""

from dataclasses import dataclass
from typing import Any

import torch

from fedcomp.algorithm.bidirectional.m3 import MarinaP, StepAndModels
from fedcomp.algorithm.contract import Context
from fedcomp.algorithm.downlinks.downlink import CompressedDownlink, DenseModel, Downlink
from fedcomp.algorithm.downlinks.mask_counts import BetaPosterior, CountsDownlink, MaskCounts
from fedcomp.algorithm.downlinks.scalars import LastRound, ScalarDownlink, WeightedScalars
from fedcomp.compressor.projections.projection import Projection
from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key
from fedcomp.wire import Ledger, WireLink
from tests.looped import looped
from tests.parts import DENSE, Compressor, ErrorFeedback, PermK, Sign

NUM_CLIENTS, DIM = 5, 6
THETA, STEP = torch.linspace(0.1, 0.9, DIM), torch.linspace(-1, 2, DIM)
COHORT = Cohort.of((0, 2, 3), torch.full((3,), 1 / 3))
SIGN = Compressor(Sign(), ErrorFeedback())
NONE = torch.zeros(0)
SCALARS, COUNTS = ScalarDownlink(Projection()), CountsDownlink(BetaPosterior(1.0, "affine", 0.01))

DOWNLINKS: dict[str, tuple[Downlink[Any, Any], Any, str]] = {
    "dense": (DenseModel(), (), "model"),
    "model": (CompressedDownlink(DENSE, "model"), DENSE.init(1, THETA), "model"),
    "update": (CompressedDownlink(SIGN, "step"), SIGN.init(1, THETA), "step"),
    "mean": (CompressedDownlink(SIGN, "mean_update"), SIGN.init(1, THETA), "mean"),
    "counts": (COUNTS, MaskCounts(torch.tensor([0.0, 1, 2, 3, 3, 1]), torch.tensor([3.0])), "model"),
    "parts": (MarinaP(Compressor(PermK()), 0.0), StepAndModels(STEP, THETA.expand(3, -1)), "model"),
}


@dataclass(frozen=True)
class Clients:
    """As many as there are, with a model of one tensor; no training."""

    num_clients: int = NUM_CLIENTS
    layers: tuple[int, ...] = (DIM,)


def places(downlink: Downlink[Any, Any], memory: Any, mean: Any = STEP) -> dict[str, tuple[float, Any]]:
    """{place at which something is sent: (receivers, what came out)}; elsewhere the very same must come out."""

    def context(ledger: Ledger) -> Context:
        return Context(1, 9, Key(("run", 0)), WireLink(ledger), Clients())  # type: ignore[arg-type]

    calls = {
        "model": (THETA, lambda ctx: downlink.model(THETA, memory, COHORT, ctx)),
        "mean": (mean, lambda ctx: downlink.mean(mean, memory, COHORT, ctx)),
        "step": (STEP, lambda ctx: downlink.step(STEP, memory, COHORT, ctx)),
    }
    found = {}
    for place, (given, call) in calls.items():
        ledger = Ledger()
        received, _ = call(context(ledger))
        counters = ledger.counters()
        if counters["broadcast"]:
            found[place] = counters["downlink"] / counters["broadcast"], received
        else:
            assert received is given, place
    return found


@looped("name", DOWNLINKS)
def test_a_downlink_sends_at_one_place(name: str) -> None:
    downlink, memory, place = DOWNLINKS[name]
    ((found, (receivers, received)),) = places(downlink, memory).items()
    assert found == place
    assert downlink.sends_model == (place == "model")
    assert receivers == {"parts": 1}.get(name, COHORT.size if place == "model" else NUM_CLIENTS)
    assert torch.isfinite(received).all()
    assert received.shape == ((3, DIM) if name == "parts" else (DIM,))


def test_scalars_are_kept_after_one_round_and_sent_in_the_next() -> None:
    first = LastRound.init(THETA, NUM_CLIENTS, SCALARS.codec)
    mean = WeightedScalars(torch.ones(3, 1), torch.arange(3))
    assert places(SCALARS, first, mean) == {}  # everybody holds the first model
    ctx = Context(0, 9, Key(("run", 0)), WireLink(Ledger()), Clients())  # type: ignore[arg-type]
    _, kept = SCALARS.mean(mean, first, COHORT, ctx)
    ((place, (receivers, received)),) = places(SCALARS, kept, mean).items()
    assert (place, receivers, SCALARS.sends_model) == ("model", COHORT.size, True)
    assert not torch.equal(received, THETA)  # the last model, moved by the scalars


def test_a_new_model_is_itself_where_models_are_sent_and_what_arrived_elsewhere() -> None:
    ctx = Context(1, 9, Key(("run", 0)), WireLink(Ledger()), Clients())  # type: ignore[arg-type]
    new = THETA + STEP
    (model, memory, _), (update, held, _) = DOWNLINKS["model"], DOWNLINKS["update"]
    assert model.send_change(THETA, new, NONE, memory, COHORT, ctx)[0] is new
    arrived, _, after = update.send_change(THETA, new, NONE, held, COHORT, ctx)
    torch.testing.assert_close(arrived + after.sender[0], new)
    assert not torch.allclose(arrived, new)
