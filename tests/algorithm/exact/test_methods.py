"""MARINA-P, TAMUNA, LoCoDL, DASHA and MARINA: what `test_plain_rounds.py` does not say of them."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedcomp.algorithm.bidirectional.m3 import M3
from fedcomp.algorithm.exact import tamuna
from fedcomp.algorithm.exact.gradient_estimate import GradientEstimate
from fedcomp.algorithm.exact.local_steps import geometric
from fedcomp.algorithm.exact.locodl import LoCoDL
from fedcomp.algorithm.exact.tamuna import Masks, Tamuna
from fedcomp.config.compose import compose
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from tests.algorithm.heterogeneous import D, N, Run, problem
from tests.conformance import world
from tests.looped import looped
from tests.parts import DENSE, GD, Adam, Compressor, Eden, ErrorFeedback, PermK, RandK, ServerSgd, Sgd, Spatial, TopK
from tests.refused import refused

PERMK = Compressor(PermK())
CLIENTS, GAMMA, P = problem(0), 4 * 0.34, 1 / 7


def _marina_p(downlink: Compressor = PERMK, p: float = P, gamma: float = GAMMA) -> M3:
    return M3(GD(lr=gamma), ServerSgd(), DENSE, downlink, p_down=p, p_up=1, beta=1, uplink_entries="compressor")


def test_is_the_recursion_of_the_paper() -> None:
    """x+ = x - gamma mean grad f_i(w_i);  w_i+ = x+ with probability p, else w_i + Q_i(x+ - x)."""
    run, codec, whole = Run(_marina_p(), CLIENTS), PermK(), 0
    x, models, step = torch.zeros(D), torch.zeros(N, D), torch.zeros(D)
    for index, state in enumerate(run.states(20)):
        key = Key(("heterogeneous", run.seed)).fold_in("round", index)
        coin = float(key.fold_in("full", "down").uniform(torch.zeros(1, dtype=torch.int64), 1))
        if index == 0 or coin < P:
            models, whole = x.expand(N, -1).clone(), whole + 1
        else:
            common = SharedKnowledge(key.fold_in("step"), torch.arange(N), CLIENTS.layers)
            models = models + _own_part(codec, step, common)
        step = -GAMMA * CLIENTS.gradients(models).mean(0).float()
        x = x + step
        assert torch.allclose(state.models, models, rtol=0, atol=1e-5)
        assert torch.allclose(state.theta, x, rtol=0, atol=1e-5)
    assert 1 < whole < 10


def _own_part(codec: PermK, step: Tensor, common: SharedKnowledge) -> Tensor:
    return codec.decode(codec.encode(step.expand(N, -1), common, Key()), common)


def test_yaml_of_marina_p_sends_full_uplinks_and_permk_down() -> None:
    config = compose(["algorithm=marina_p"])
    assert (config.algorithm.p_up, config.algorithm.beta, config.algorithm.p_down) == (1.0, 1.0, None)
    for part, name in (("client", "GD"), ("compressor", "Dense"), ("downlink", "PermK")):
        assert config[part]._target_.endswith(f".{name}"), part


@pytest.mark.thorough
def test_a_client_that_learns_of_the_mean_too_late_spoils_the_limit(monkeypatch) -> None:
    """Duals made from the model that the round began with, as the authors' Flower baseline has it at a later visit."""

    class Late(Masks):
        begun = torch.zeros(D)

        def message(self, rows):
            mean = rows.stride(0) == 0  # the answer is one row for all
            payload = super().message(Late.begun.expand_as(rows) if mean else rows)
            Late.begun = rows[0].clone() if mean else Late.begun
            return payload

    algorithm = Tamuna(GD(lr=2 / 1.02), 2, 0.265)
    assert Run(algorithm, problem(0), 4).floor(200) < 1e-2
    monkeypatch.setattr(tamuna, "Masks", Late)
    assert not Run(algorithm, problem(0), 4).floor(200) < 0.05


@looped("clients, per_entry, dim", [(7, 2, 40), (5, 5, 11), (4, 3, 7), (10, 2, 3), (3, 2, 1)])
def test_every_entry_is_sent_by_as_many_clients(clients: int, per_entry: int, dim: int) -> None:
    seen = torch.zeros(clients, dim)
    for draw in range(200):
        masks = Masks.draw(clients, per_entry, dim, Key(("masks", draw)), torch.device("cpu"))
        whole = masks.whole(dim)
        assert (whole.sum(0) == per_entry).all()
        assert torch.equal(whole.sum(1), masks.count.float())
        if per_entry * dim >= clients:
            assert int(masks.count.max() - masks.count.min()) <= per_entry
        seen += whole
    share = per_entry / clients
    assert ((seen / 200 - share).abs() < 5 * (share * (1 - share) / 200) ** 0.5 + 1e-6).all()


RAND4 = Compressor(RandK(k=4, seed_cost="derived"))
MU = 0.02
BALANCED = LoCoDL(GD(lr=1.0), RAND4, None, convexity=MU)


def test_the_balanced_probability() -> None:
    assert Tamuna(GD(lr=0.1), 3, None, smoothness=8.0, convexity=0.5)._probability(6) == pytest.approx(0.125**0.5)
    omega, of_mean, gamma = 9.0, 9 / 7, 1.0
    expected = math.sqrt((1 + 2 * omega) * (1 + of_mean) * (1 - (1 - gamma * MU / 2) ** 2))
    found = BALANCED.constants(CLIENTS.layers, N)
    assert found.p == pytest.approx(expected)
    assert (found.rho, found.chi) == pytest.approx((1 / (1 + of_mean),) * 2)
    assert found.dual_step == pytest.approx(expected * found.chi / (gamma * 19))
    decayed = LoCoDL(GD(lr=1.0, weight_decay=MU), RAND4, None)
    assert decayed.constants(CLIENTS.layers, N).p == pytest.approx(expected)
    assert replace(BALANCED, omega=99.0).constants(CLIENTS.layers, N).p == 1


def test_the_number_of_local_steps_is_geometric() -> None:
    draws = torch.tensor([geometric(0.25, Key(("steps", index))) for index in range(4000)], dtype=torch.float64)
    assert int(draws.min()) == 1
    assert abs(float(draws.mean()) - 4) < 4 * (12 / 4000) ** 0.5
    assert abs(float((draws == 1).double().mean()) - 0.25) < 4 * (0.1875 / 4000) ** 0.5
    assert geometric(1.0, Key()) == 1
    always = [Run(replace(BALANCED, p=1.0, schedule=how), CLIENTS).states(2) for how in ("random", "period")]
    assert all(torch.equal(one.theta, other.theta) for one, other in zip(*always, strict=True))


def test_constants_outside_of_the_theory_are_said(caplog) -> None:
    with caplog.at_level("WARNING", logger="fedcomp"):
        replace(BALANCED, rho=1.0, chi=0.99).constants(CLIENTS.layers, N)
        assert "LoCoDL with rho=1, chi=0.99 and omega_av=1.29 is outside of its theory" in caplog.text
        caplog.clear()
        BALANCED.constants(CLIENTS.layers, N)
    assert not caplog.text


STEP = ServerSgd()
DASHA = GradientEstimate(GD(lr=16 * 0.0482), STEP, RAND4)
MARINA = GradientEstimate(GD(lr=4 * 0.228), STEP, RAND4, "marina")


def test_estimates_become_gradients() -> None:
    run = Run(DASHA, CLIENTS)
    errors = []
    for state in run.states(250):
        assert torch.allclose(state.gradients.mean(0).norm(), run.metrics["grad/norm"], atol=1e-5)
        errors.append(float(run.metrics["estimate/error"]))
    assert errors[-1] < 1e-3 * errors[0]


def test_whole_vectors_go_up_at_dashas_start_alone_and_in_marinas_share_of_rounds() -> None:
    found = [bits["uplink"] for *_, bits in Run(replace(DASHA, start="gradient"), CLIENTS).rounds(3)]
    assert found == [N * 32 * D, N * 4 * 32, N * 4 * 32]
    run, whole = Run(MARINA, CLIENTS), []
    for *_, bits in run.rounds(400):
        whole.append(float(run.metrics["coin/full"]))
        assert bits == {"uplink": N * 32 * (D if whole[-1] else 4), "downlink": N * 32 * D, "broadcast": 32 * D}
    assert whole[0] == 1
    assert abs(sum(whole[1:]) / 399 - 0.1) < 4 * (0.09 / 399) ** 0.5


def test_stochastic_gradients_are_allowed_and_said() -> None:
    for client, exact in ((GD(lr=0.1), 1.0), (Sgd(lr=0.1, batch_size=4), 0.0)):
        run = Run(replace(DASHA, client=client), CLIENTS)
        run.last(1)
        assert float(run.metrics["exact"]) == exact


test_wrong_input = refused(
    [
        (lambda: Tamuna(GD(lr=0.1), p=None, smoothness=1.0), "algorithm.p=null is computed from algorithm.smoothness"),
        (lambda: Tamuna(GD(lr=0.1, steps=2)), "TAMUNA sets its own number of plain gradient steps, but client.steps=2"),
        (lambda: Tamuna(GD(lr=0.1), 2).check_cohort(1), "algorithm.sparsity=2 is above the 1 clients .* clients .2"),
        (lambda: world.simulation(Tamuna(GD(lr=0.1)), world.with_batch_norm).init(), "TAMUNA needs a model without"),
        (lambda: LoCoDL(Adam(lr=0.1), RAND4), "sets its own number of plain gradient steps, but client=adam was given"),
        (lambda: LoCoDL(Sgd(lr=0.1, momentum=0.9), RAND4), "but client.momentum=0.9 was given"),
        (lambda: LoCoDL(Sgd(lr=0.1, epochs=3), RAND4), "but client.epochs=3 was given"),
        (lambda: LoCoDL(GD(lr=0.1, steps=3), RAND4), "but client.steps=3 was given"),
        (lambda: LoCoDL(GD(lr=0.1, clip_norm=1.0), RAND4), "but client.clip_norm=1.0 was given"),
        (lambda: LoCoDL(GD(lr=0.1, proximal=1.0), RAND4), "but client.proximal=1.0 was given"),
        (lambda: LoCoDL(GD(lr=0.1, schedule="cosine"), RAND4), "client.schedule=cosine changes the step"),
        (lambda: LoCoDL(GD(lr=0.1), Compressor(TopK())), "LoCoDL needs an unbiased compressor, not TopK as configured"),
        (lambda: LoCoDL(GD(lr=0.1), Compressor(TopK(), ErrorFeedback())), "compressor.feedback must be none: LoCoDL"),
        (lambda: LoCoDL(GD(lr=0.1), RAND4, 0.0), "algorithm.p=0.0 must be a number in"),
        (lambda: LoCoDL(GD(lr=0.1), RAND4, None), "algorithm.p=null is computed from algorithm.convexity"),
        (lambda: LoCoDL(GD(lr=0.5), RAND4, smoothness=4.0), r"client.lr=0.5 must be below 2 / algorithm.smoothness"),
        (lambda: LoCoDL(GD(lr=0.1), RAND4, smoothness=1.0, convexity=2.0), "algorithm.convexity=2.0 is above"),
        (lambda: LoCoDL(GD(lr=0.1), RAND4, convexity=0.0), "algorithm.convexity=0.0 must be a positive number"),
        (lambda: LoCoDL(GD(lr=1.9), RAND4, schedule="period", smoothness=1.0), "schedule=period needs client.lr of"),
        (lambda: Run(LoCoDL(GD(lr=0.1), Compressor(Eden())), CLIENTS).init(), "omega of Eden has no closed form:"),
        (lambda: replace(DASHA, uplink=Compressor(TopK())), "DASHA needs an unbiased compressor, not TopK as"),
        (lambda: replace(MARINA, uplink=Compressor(RandK(scale="none"))), "MARINA needs an unbiased compressor, not"),
        (lambda: replace(DASHA, uplink=Compressor(RandK(), estimator=Spatial("avg"))), "compressor.estimator must be"),
        (lambda: replace(DASHA, a=0), r"algorithm.a=0 must be a number in \(0, 1\], or null: a probability"),
        (lambda: replace(MARINA, p=2), "algorithm.p=2 must be a number in"),
        (lambda: replace(DASHA, client=GD(lr=1, steps=2)), "DASHA sets its own number .* but client.steps=2 was given"),
        (lambda: Run(replace(DASHA, uplink=Compressor(Eden())), CLIENTS).init(), "omega of Eden has no closed form:"),
        (lambda: world.simulation(DASHA, world.with_batch_norm).init(), r"DASHA needs a model without running"),
    ]
)
