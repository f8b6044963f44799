"""FedMUD: resets keep the model, its rounds add the mean of what factors stand for, and full rank is FedAvg's step."""

from dataclasses import dataclass, replace

import pytest
import torch

from fedcomp.algorithm.low_rank.fedmud import FedMUD
from fedcomp.wire import Ledger, WireLink
from tests.conformance import world
from tests.parts import DENSE, FedAvg, Muon, ServerSgd, Sgd
from tests.refused import refused

SGD = Sgd(lr=0.1, batch_size=4, epochs=2)
MUD = FedMUD(SGD, skip_first=0, skip_last=0, ratio=0.5, search=False)


@dataclass(frozen=True)
class Orthonormal(FedMUD):
    """Fixed factors F with F F^T = I, which have full rank at ratio 1."""

    def _drawn(self, factors, like, key):
        x, _ = super()._drawn(factors, like, key)
        return x, torch.cat([torch.eye(one.left[0], one.left[1]).flatten() for one in factors.products])


@pytest.mark.thorough
def test_the_search_ends_at_a_ratio_that_factors_can_have(capsys, fedcomp) -> None:
    """0.05 is 49 steps of 0.001 above the least, and in floats a little more; and what it cannot save is said."""
    for ratio in (0.02, 0.04, 0.05, 0.07):
        assert fedcomp("algorithm=fedmud", f"algorithm.ratio={ratio}", "rounds=1") == 0
        said = capsys.readouterr().err
        assert (
            f"algorithm.ratio={ratio} cannot be met: of 2410 numbers 190 are trained and sent, a share of 0.0788"
            in said
        )
        assert "148 are the least that factors have, and 42 are dense" in said
    assert fedcomp("algorithm=fedmud", "algorithm.ratio=0.1", "rounds=1") == 0
    assert "cannot be met" not in capsys.readouterr().err


def test_full_rank_is_fedavgs_step() -> None:
    one = Sgd(lr=0.2, steps=1, batch_size=4)
    ours = world.simulation(Orthonormal(one, "mat", "fab", 1.0, False, 0, 0))
    theirs = world.simulation(FedAvg(one, ServerSgd(), DENSE, DENSE))
    assert torch.allclose(world.run(ours).theta, world.run(theirs).theta, atol=1e-6)


@pytest.mark.parametrize("interval", [1, 3])
def test_resets_keep_the_model_and_move_its_base(interval: int) -> None:
    sim = world.simulation(replace(MUD, interval=interval), participation=world.FULL)
    state, part = sim.init(), MUD.part(sim.model.tensors)
    factors = MUD.factors(sim.model.tensors)
    for index in range(7):
        after, _ = sim.round(index, state, Ledger())
        resets = index > 0 and index % interval == 0
        assert torch.equal(after.base, state.base) == (not resets)
        assert torch.equal(after.fixed, state.fixed) == (not resets)
        if resets:  # the factors that went into the base are the last round's
            wanted = state.base + factors.fold(state.factors[None], state.fixed)[0]
            assert torch.allclose(after.base, wanted, atol=1e-6)
        moved = factors.fold(after.factors[None], after.fixed)[0]
        assert torch.allclose(part.take(after.theta), after.base + moved, atol=1e-6)
        assert moved.norm() > 1e-3
        state = after


def test_fixed_factors_differ_between_tensors_sides_and_rounds_and_repeat() -> None:
    sim = world.simulation(MUD)
    first, second = sim.init(), world.simulation(MUD).init()
    assert torch.equal(first.fixed, second.fixed)
    pieces = first.fixed.split(MUD.factors(sim.model.tensors).fixed)
    assert not any(torch.equal(one[:4], other[:4]) for place, one in enumerate(pieces) for other in pieces[:place])
    assert not torch.equal(world.run(sim, last=2).fixed, first.fixed)


def test_both_downlinks_train_the_same_model_and_count_their_bits() -> None:
    num, dense, dim = sum(MUD.factors(world.simulation(MUD).model.tensors).trained), 7, 39
    found = {}
    for downlink, bits in (("factors", 32 * (num + dense) * world.NUM_CLIENTS), ("model", 32 * (num + dim) * 3)):
        ledger, sim = Ledger(), world.simulation(replace(MUD, sends=downlink), link=WireLink)
        found[downlink] = world.run(sim, last=2, ledger=ledger).theta
        assert ledger.counters()["downlink"] == 2 * bits
        assert ledger.counters()["uplink"] == 2 * 3 * 32 * (num + dense)
    assert torch.equal(found["factors"], found["model"])


@pytest.mark.parametrize("kind", ["mat", "kron"])
def test_both_trained_have_an_aggregation_error_with_more_than_one_client(kind: str) -> None:
    algorithm = replace(MUD, type=kind, pattern="ab", distribution="uniform", magnitude=0.5)
    for sizes, wrong in (((20,), False), ((20, 12), True)):
        sim = world.simulation(algorithm, participation=world.FULL, sizes=sizes)
        _, result = sim.round(0, sim.init(), Ledger())
        assert (float(result.metrics["mud/aggregation_error"]) > 1e-4) == wrong


def test_the_effective_rate_is_logged() -> None:
    official = FedMUD(Sgd(lr=0.01, batch_size=4), skip_first=0, skip_last=0, distribution="uniform", magnitude=5.0)
    sim = world.simulation(official)
    _, result = sim.round(0, sim.init(), Ledger())
    assert float(result.metrics["mud/effective_rate"]) == pytest.approx(0.01 * 2 * 25 / 3, rel=1e-5)  # 0.167


test_wrong_options = refused(
    [
        ({"pattern": "ab"}, "algorithm.distribution=auto sets the first step's size, which algorithm.pattern=ab has"),
        ({"client": Muon(lr=0.1)}, "client=muon orthogonalises steps of weight matrices, and algorithm=fedmud trains"),
    ],
    lambda client=SGD, **options: FedMUD(client, **options),
)


def test_skips_that_leave_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="algorithm.skip_first=1 and skip_last=1 leave none of this model's"):
        world.simulation(FedMUD(SGD)).init()
