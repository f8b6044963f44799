"""DeltaMask: with nothing dropped or false it is FedPM; coupled draws; which flips are sent."""

from dataclasses import dataclass, replace

import pytest
import torch

from fedcomp.algorithm.contract import Context, Setup
from fedcomp.algorithm.fedpm import FedPM
from fedcomp.algorithm.learnt_bits.deltamask import DeltaMask, kl, largest, shorter
from fedcomp.client.adam import Adam
from fedcomp.compressor.fuse_filter import FuseFilter
from fedcomp.compressor.sparsifiers.sparse_indices import places_field
from fedcomp.core.parameter_layout import WEIGHT, ParameterTensor
from fedcomp.random.keys import Key
from fedcomp.wire import Ledger
from fedcomp.wire.link import WireLink
from tests.conformance import world
from tests.looped import looped
from tests.refused import refused
from tests.rounds import one_round, rounds

SCORES = Adam(lr=0.1, batch_size=4)


@dataclass(frozen=True, kw_only=True)
class Still(Adam):
    """Steps of length 0, which the options refuse."""

    def update(self, theta, grad, slots, coefficients) -> None:
        """Stay."""
        theta.add_(grad, alpha=0.0)
        slots[0].mul_(1.0)


def test_all_flips_without_error_are_fedpm(monkeypatch: pytest.MonkeyPatch) -> None:
    """kappa = 1, exact places, all clients, a reset in each round: FedPM fed with the same uniforms, bit for bit."""
    delta = DeltaMask(SCORES, kappa=1.0, kappa_final=1.0, coding="places", reset_every=1)
    private = Context.sender_key

    def alike(self, name):
        return self.key.fold_in("reference") if name == "mask" else private(self, name)

    for coding in ("places", "arithmetic"):
        ours = world.run(world.simulation(replace(delta, coding=coding), participation=world.FULL))
        with monkeypatch.context() as patch:
            patch.setattr(Context, "sender_key", alike)
            theirs = world.run(world.simulation(FedPM(SCORES), participation=world.FULL))
        assert torch.equal(ours.theta, theirs.theta)
        assert torch.equal(ours.weights, theirs.weights)
    assert not torch.equal(theirs.theta, world.run(world.simulation(FedPM(SCORES), participation=world.FULL)).theta)


@looped("coding, filters", [("places", False), ("arithmetic", False), ("filter", True), ("auto", True)])
def test_filters_alone_need_tries(coding: str, filters: bool) -> None:
    one = one_round(world.simulation(DeltaMask(SCORES, coding=coding)))  # type: ignore[arg-type]
    assert ("delta/tries" in one.metrics) == filters


def test_nothing_learnt_sends_nothing_and_theta_keeps_fedpms_variance() -> None:
    """At eta = 0: no flip, and E (theta' - theta)^2 = theta (1 - theta) / M, here averaged over entries and rounds."""
    still = DeltaMask(Still(lr=1.0, batch_size=4), theta0=0.3, clamp=1e-4)
    sim, errors = world.simulation(still, participation=world.FULL), []
    start = sim.init()
    for index in range(60):
        one = one_round(sim, start, index)
        assert float(one.metrics["delta/flips"].max()) < 0.01  # theta in and out of scores differs by rounding
        errors.append((one.after.theta - start.theta).square().mean())
    wanted = 0.3 * 0.7 / world.NUM_CLIENTS
    assert float(torch.stack(errors).mean()) == pytest.approx(wanted, rel=0.1)


def test_independent_draws_are_each_clients_own() -> None:
    """Against one reference for all, where nobody has learnt anything."""
    still = DeltaMask(Still(lr=0.1), draw="independent", reference="shared", theta0=0.5)
    metrics = one_round(world.simulation(still, participation=world.FULL)).metrics
    assert len(metrics["delta/flips"].unique()) > 1


def test_the_largest_divergences_are_sent_and_ties_by_place() -> None:
    flips = torch.tensor([[True, True, False, True, True], [False] * 5, [True, False, False, False, False]])
    divergence = torch.tensor([[0.1, 0.5, 0.9, 0.5, 0.1]] * 3).double()
    found = largest(flips, divergence, 0.5)
    assert [row.nonzero()[:, 0].tolist() for row in found] == [[1, 3], [], [0]]
    assert largest(flips, divergence, 0.75)[0].tolist() == [True, True, False, True, False]
    assert torch.equal(largest(flips, divergence, 1.0), flips)
    assert largest(flips, divergence, 1e-6).sum(1).tolist() == [1, 0, 1]  # one at least where there is any


def test_kl_is_that_of_bernoulli_distributions_and_finite_at_0_and_1() -> None:
    p, q = torch.tensor([[0.3, 0.5, 1.0]]), torch.tensor([0.6, 0.5, 0.2])
    wanted = 0.3 * torch.tensor(0.5).log() + 0.7 * torch.tensor(0.7 / 0.4).log()
    assert float(kl(p, q)[0, 0]) == pytest.approx(float(wanted), rel=1e-5)
    assert float(kl(p, q)[0, 1]) == 0
    assert kl(p, q).isfinite().all()
    one, other = (torch.distributions.Bernoulli(x[:2].double()) for x in (p[0], q))
    assert torch.allclose(kl(p, q)[0, :2], torch.distributions.kl_divergence(one, other))


def _evenly(dim: int, num: int, last: int) -> torch.Tensor:
    """[1, dim] flips: `num` - 1 that are evenly spaced, and one at `last`."""
    row = torch.zeros(1, dim, dtype=torch.bool)
    row[0, torch.arange(num - 1) * 32] = True
    row[0, last] = True
    return row


def test_auto_sends_each_row_in_the_shorter_code_and_places_if_both_are_as_long() -> None:
    """A bit, and 40 + 4 A(n) bits of a filter, or ceil(log2(d + 1)) for n and the shortest Rice code."""
    dim, filters, key = 40_000, FuseFilter(4, 4), Key(("k",))
    spaced = [_evenly(dim, 100, last) for last in range(6000, 6200, 8)]
    by_last = {int(places_field(row).bits): row for row in spaced}
    limit = filters.bits(100)
    rows = {
        "none": torch.zeros(1, dim, dtype=torch.bool),
        "few": _evenly(dim, 3, 500),
        "shorter": by_last[limit - 1],
        "tie": by_last[limit],
        "longer": by_last[limit + 1],
        "many": torch.rand(1, dim, generator=torch.Generator().manual_seed(0)) < 0.01,
    }
    sent, ids = torch.cat(list(rows.values())), torch.arange(len(rows))
    payload = shorter(sent, filters, ids, key)
    filtered = payload.fields["filter"].data[:, 0].tolist()
    assert dict(zip(rows, filtered, strict=True)) == dict.fromkeys(rows, 0) | {"longer": 1, "many": 1}
    each = [(filters.bits(int(row.sum())), int(places_field(row[None]).bits)) for row in sent]
    assert payload.bits.tolist() == [1 + min(one) for one in each]
    assert payload.bits.tolist()[0] == 1 + 16  # of no flips only their number

    link = WireLink(Ledger())
    received = link.up(payload)  # what is read from the bytes
    algorithm = DeltaMask(SCORES, coding="auto", fingerprint=4)
    found, _ = algorithm.read_shorter(received, ids, key, dim)
    for name, row, own in zip(rows, sent, found, strict=True):
        assert (own >= row).all()
        assert torch.equal(own, row) == (name not in ("longer", "many"))
    few = link.up(shorter(sent[:2], filters, ids[:2], key))
    found, metrics = algorithm.read_shorter(few, ids[:2], key, dim)
    assert torch.equal(found, sent[:2])
    assert metrics["delta/tries"].tolist() == [0, 0]


@looped("options", [{}, {"coding": "auto"}, {"draw": "independent"}, {"draw": "independent", "reference": "shared"}])
def test_metrics_and_bounds(options) -> None:
    for one in rounds(world.simulation(DeltaMask(SCORES, fingerprint=4, **options), participation=world.FULL), 3):
        metrics, theta = one.metrics, one.after.theta
        assert (metrics["delta/sent"] <= metrics["delta/flips"] + 1e-7).all()
        assert (metrics["delta/kl_sent"] >= metrics["delta/kl_dropped"] - 1e-12).all()
        assert ((metrics["delta/false"] >= 0) & (metrics["delta/false"] <= 1)).all()
        assert ((theta >= 0) & (theta <= 1)).all()


@looped(
    "options, totals", [({}, [3, 6, 9, 3, 6]), ({"reset_every": 2}, [3, 6, 3, 6, 3]), ({"reset_every": 0}, [3, 6, 9])]
)
def test_posterior_keeps_masks_until_all_clients_may_have_come(options, totals: list[int]) -> None:
    """3 of 7 clients a round: by default three rounds."""
    sim = world.simulation(DeltaMask(SCORES, **options))
    assert [float(one.after.total) for one in rounds(sim, len(totals))] == totals


def test_kappa_falls_by_a_cosine() -> None:
    algorithm = DeltaMask(SCORES, kappa=0.8, kappa_final=0.2)
    found = [algorithm.share(Context(index, 11, Key(), None, None)) for index in (0, 5, 10)]
    assert found == pytest.approx([0.8, 0.5, 0.2])
    assert replace(algorithm, schedule="constant").share(Context(7, 11, Key(), None, None)) == 0.8


def _init(tensors: tuple[ParameterTensor, ...]) -> None:
    theta = torch.zeros(2, device="meta")
    DeltaMask(SCORES).init(theta, theta[:0], Setup(2, tensors, Key()))


test_wrong_options = refused(
    [
        ({"kappa_final": 0.0}, "algorithm.kappa_final=0.0"),
        ({"draw": "coupled", "reference": "shared"}, "makes all clients' masks alike"),
        ({"reset_every": -1}, "algorithm.reset_every=-1"),
        ({"weights": "samples"}, "algorithm.weights=samples"),
        (lambda: _init(()), "algorithm=deltamask masks weights and biases, and this model has none"),
        (lambda: _init((ParameterTensor(1 << 32, WEIGHT),)), "too few for 4294967296 masked weights"),
    ],
    lambda **options: DeltaMask(SCORES, **options),
)
