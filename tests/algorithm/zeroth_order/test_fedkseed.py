"""FedKSeed: coefficients are the pairs summed, the model is theirs, and it stays in the span of the pool."""

import logging
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedcomp.algorithm.contract import Setup
from fedcomp.algorithm.zeroth_order.fedkseed import FedKSeed
from fedcomp.algorithm.zeroth_order.pool import Changes
from fedcomp.random.keys import Key
from fedcomp.simulation.divergence import Diverged, DivergenceMonitor
from fedcomp.wire import Ledger, Payload
from tests.algorithm.heterogeneous import D, Heterogeneous, problem
from tests.algorithm.zeroth_order.objectives import NotingLink, cohort_of, context
from tests.conformance import world
from tests.looped import looped
from tests.refused import refused

ONE = FedKSeed(pool=30, steps=7, mu=1e-2, lr=0.01)


def _state(algorithm: FedKSeed, clients: Heterogeneous):
    theta = torch.linspace(-1, 1, D)
    return algorithm.init(theta, torch.zeros(0), Setup(clients.num_clients, clients.tensors, Key(("run", 0))))


def _rounds(algorithm: FedKSeed, clients: Heterogeneous, cohorts) -> list:
    """[(state before, state after, link, metrics)] of each round."""
    state, found = _state(algorithm, clients), []
    for index, chosen in enumerate(cohorts):
        link = NotingLink(Ledger())
        after, metrics = algorithm.round(state, cohort_of(*chosen), context(clients, index, link))
        found.append((state, after, link, metrics))
        state = after
    return found


def _pool(algorithm: FedKSeed, state) -> Tensor:
    """[K, D] float64 the directions."""
    return algorithm.directions(state.pool.numbers, 1, 0, len(state.theta))[:, 0].double()


@looped("options", [{}, {"sampling": "amplitude"}, {"pool": 3}, {"choice": "derived"}])
def test_coefficients_are_the_pairs_summed(options) -> None:
    clients, algorithm = problem(), replace(ONE, **options)
    for before, after, link, _ in _rounds(algorithm, clients, ((0, 1, 3), (1, 2), (0, 3))):
        fields, wanted = link.received.fields, before.pool.sums.double().clone()
        weight = 1 / len(next(iter(fields.values())).data)
        if "sums" in fields:
            wanted += weight * fields["sums"].data.double().sum(0)
        elif "index" in fields:
            for index, scalar in zip(fields["index"].data.flatten(), fields["scalars"].data.flatten()):
                wanted[index] += weight * float(scalar)
        else:
            assert options == {"choice": "derived"}
            continue
        assert torch.allclose(after.pool.sums.double(), wanted, rtol=1e-6, atol=1e-6)
        assert (after.pool.sums != before.pool.sums).any()


def test_derived_choices_are_those_that_would_be_sent() -> None:
    clients = problem()
    sent, derived = (
        _rounds(replace(ONE, choice=how), clients, ((0, 1, 3), (1, 2)))[-1][1] for how in ("sent", "derived")
    )
    assert torch.equal(sent.theta, derived.theta)


@looped("options", [{}, {"difference": "forward"}, {"sampling": "amplitude", "unbiased_sampling": True}])
def test_the_model_is_a_clients_own_path(options) -> None:
    """One client, two rounds; both along the recorded pairs, each g of which is the derivative at its own step."""
    clients, algorithm = problem(), replace(ONE, **options)
    for before, after, link, _ in _rounds(algorithm, clients, ((0,), (0,))):
        z, x = _pool(algorithm, before), before.theta.double()
        share = before.pool.probabilities().double()
        for index, scalar in zip(link.received.fields["index"].data[0], link.received.fields["scalars"].data[0]):
            slope = clients.gradients(x)[0] @ z[index]
            if algorithm.difference == "forward":
                slope = slope + 1e-2 / 2 * z[index] @ clients.hessians[0] @ z[index]
            assert float(scalar) == pytest.approx(float(slope), rel=1e-4, abs=1e-4)
            factor = 1 / (30 * share[index]) if algorithm.unbiased_sampling else 1.0
            x = x - 0.01 * float(scalar) * factor * z[index]
        assert torch.allclose(after.theta.double(), x, atol=1e-5)
        assert (after.theta - before.theta).norm() > 0.05


def test_sums_and_pairs_make_the_same_model() -> None:
    clients = problem()
    few = replace(ONE, pool=4, steps=20, lr=0.002)
    assert few.sends_sums

    class Pairs(FedKSeed):
        sends_sums = False

    sums = _rounds(few, clients, ((0, 1), (1,)))[-1][1]
    pairs = _rounds(Pairs(**vars(few)), clients, ((0, 1), (1,)))[-1][1]
    assert torch.allclose(sums.theta, pairs.theta, atol=1e-6)


def test_probabilities_of_amplitudes() -> None:
    clients = problem()
    algorithm = replace(ONE, sampling="amplitude")
    first, *_, last = [one[0] for one in _rounds(algorithm, clients, ((0, 1), (1, 2), (2, 3), (0, 3)))]
    assert torch.allclose(first.pool.probabilities(), torch.full((30,), 1 / 30))
    share = last.pool.probabilities()
    assert float(share.sum()) == pytest.approx(1, rel=1e-6)
    assert float(share.max() / share.min()) == pytest.approx(math.e, rel=1e-5)  # the largest that there is
    h = last.pool.amplitude / (1 + last.pool.uses)  # an entry 0 from the start
    assert share.argmax() == h.argmax()
    assert (last.pool.uses == 0).any()
    assert torch.allclose(share[last.pool.uses == 0], share.min())
    known = replace(last.pool, amplitude=torch.tensor([4.0, 6.0, 0.0]), uses=torch.tensor([1.0, 3.0, 0.0]))
    assert torch.allclose(known.probabilities(), torch.tensor([1.0, 0.75, 0.0]).softmax(0))
    noted = last.pool.add(torch.tensor([[3, 3]]), torch.tensor([[-5000.0, 2.0]]), torch.zeros(1, 2))
    assert noted.amplitude[3] == last.pool.amplitude[3] + 1002  # cut at 1000
    equal = replace(last.pool, amplitude=torch.ones(30), uses=torch.ones(30))
    assert torch.allclose(equal.probabilities(), torch.full((30,), 1 / 30))


def test_directions_are_drawn_with_their_probabilities() -> None:
    """Also: with `unbiased_sampling` each counts 1 / K in the mean, as under uniform sampling."""
    draws = 4000
    algorithm = replace(ONE, pool=5, steps=50, sampling="amplitude", unbiased_sampling=True)
    share = torch.tensor([0.1, 0.3, 0.2, 0.25, 0.15])
    everybody = cohort_of(*range(draws))
    chosen = algorithm._choose(share, everybody, context(problem(), 0))
    for own, counted, wanted in (
        (algorithm, torch.ones(draws, 50), share),
        (algorithm, algorithm._factor(share, chosen), torch.full((5,), 0.2)),
    ):
        assert own.sampling == "amplitude"
        hits = torch.stack([(counted * (chosen == j)).mean(1) for j in range(5)], 1).double()
        assert ((hits.mean(0) - wanted).abs() < 5 * hits.std(0) / draws**0.5).all()
    uniform = replace(algorithm, sampling="uniform")._choose(share, everybody, context(problem(), 0))
    assert torch.allclose(torch.bincount(uniform.flatten()) / uniform.numel(), torch.full((5,), 0.2), atol=0.005)


COHORTS = ((0, 1), (2, 3), (0, 2), (0, 1), (3, 4))


def test_increments_bring_every_client_to_the_servers_coefficients() -> None:
    clients, algorithm = problem(), replace(ONE, pool=200, steps=5, sends="delta")
    known = torch.zeros(6, 200)
    longer = 0
    for before, _, link, _ in _rounds(algorithm, clients, COHORTS):
        for who, payload in link.broadcasts:
            for client in who:
                if "index" in payload.fields:
                    known[client, payload.fields["index"].data[0]] = payload.fields["sums"].data[0]
                else:
                    known[client] = payload.fields["sums"].data[0]
                assert torch.equal(known[client], before.pool.sums)
            longer = max(longer, payload.total_bits)
    assert 0 < longer < 32 * 200
    whole = _rounds(replace(algorithm, sends="pool"), clients, COHORTS)[-1][1]
    assert torch.equal(whole.theta, _rounds(algorithm, clients, COHORTS)[-1][1].theta)


@looped("number", range(13))
def test_increments_are_pairs_or_all_coefficients_whichever_is_shorter(number: int) -> None:
    payload = Payload(Changes(12, 4).fields(torch.arange(number), torch.arange(12.0)))
    assert int(payload.total_bits) == 4 + min(number * (32 + 4), 32 * 12)


def test_bits() -> None:
    """44 tau up and 32 K down with K = 4096; the paper's 17,988 bytes a round with tau = 200."""
    clients = problem()
    algorithm = FedKSeed(steps=200, lr=1e-4)
    ((_, _, link, metrics),) = _rounds(algorithm, clients, ((0,),))
    found = link.ledger.counters()
    assert found["uplink"] == 44 * 200
    assert found["downlink"] == 32 * 4096
    assert found["paper/uplink"] + found["paper/downlink"] == 8 * 17_988
    assert metrics["evaluations"] == 400
    assert metrics["pool/used"] == pytest.approx(195.2 / 4096, abs=10 / 4096)  # of 200 draws
    assert 0 < metrics["pool/entropy"] < math.log2(200)


def test_clipped_steps_are_left_out() -> None:
    for difference, width in (("central", 2e-2), ("forward", 1e-2)):
        algorithm = replace(ONE, clip=2 * width, sampling="amplitude", difference=difference)
        ((_, after, link, metrics),) = _rounds(algorithm, problem(), ((0, 1),))
        scalars = link.received.fields["scalars"].data
        assert 0 < int((scalars == 0).sum()) < scalars.numel(), difference
        assert 1 < scalars.abs().max() <= 2, difference
        assert int(after.pool.uses.sum()) == int((scalars != 0).sum())
        assert metrics["train/loss"].isfinite().all()


def test_a_client_whose_every_step_is_clipped_is_named() -> None:
    sim = world.simulation(FedKSeed(pool=50, steps=4, lr=0.01, batch_size=4, clip=1e-12))
    _, result = sim.round(0, sim.init(), Ledger())
    with pytest.raises(Diverged, match=r"round 1: the loss of client \d and 2 more is nan"):
        DivergenceMonitor().add(1, result.cohort, result.metrics)


def test_a_pool_too_large_for_the_model_is_warned_of(caplog) -> None:
    with caplog.at_level(logging.WARNING, "fedcomp"):
        FedKSeed().init(torch.empty(3_000_000), torch.zeros(0), Setup(2, (), Key()))
    assert "algorithm.pool=4096 for 3000000 parameters: a round draws up to 1e+10 numbers" in caplog.text


test_wrong_options = refused(
    [({"pool": 1, "sampling": "amplitude"}, "algorithm.pool=1 leaves nothing to choose for")], FedKSeed
)
