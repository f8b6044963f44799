"""FedProx, SCAFFOLD, SCALLION, FedDyn: fixed points, what they refuse; their rounds are in `test_plain_rounds.py`."""

from dataclasses import replace

import pytest
import torch

from fedcomp.algorithm.heterogeneity.feddyn import FedDyn
from fedcomp.algorithm.heterogeneity.fedprox import FedProx
from fedcomp.algorithm.heterogeneity.scaffold import Scaffold
from fedcomp.algorithm.heterogeneity.scallion import Scallion
from fedcomp.compressor import Compressor
from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key
from tests.algorithm.heterogeneous import D, Heterogeneous, N, Run, problem
from tests.parts import DENSE, Adam, Dense, Eden, ErrorFeedback, FedAvg, MRCSign, RandK, ServerSgd, Sgd, Spatial, TopK
from tests.refused import refused

STEP, CLIENTS = ServerSgd(), problem(0)
TEN = Sgd(lr=0.1, steps=10)


def _prox(mu: float, client: Sgd = TEN) -> FedProx:
    return FedProx(replace(client, proximal=mu), STEP, DENSE, DENSE, "uniform")


def test_without_a_pull_it_is_fedavg() -> None:
    tiny, plain = _prox(1e-30), FedAvg(TEN, STEP, DENSE, DENSE, "uniform")
    for here, there in zip(Run(tiny, CLIENTS).states(5), Run(plain, CLIENTS).states(5), strict=True):
        assert torch.equal(here.theta, there.theta)


@pytest.mark.parametrize(("mu", "floor"), [(1.0, 3.9e-2), (10.0, 9.2e-4)])
def test_its_fixed_point_is_that_of_exact_proximal_steps(mu: float, floor: float) -> None:
    """mean H_i (H_i + mu)^-1 H_i ... = 0 at x: a step from there returns to it, at the distance of the program."""
    eye = torch.eye(D, dtype=torch.float64)
    shrink = torch.linalg.solve(CLIENTS.hessians + mu * eye, CLIENTS.hessians)  # y_i - x = shrink_i (b_i - x)
    pull = (shrink @ CLIENTS.centres[:, :, None]).mean(0)[:, 0]
    fixed = torch.linalg.solve(shrink.mean(0), pull)
    assert CLIENTS.distance(fixed) == pytest.approx(floor, rel=0.05)
    exact = Sgd(lr=0.9 / (1 + mu), steps=300)
    run = Run(_prox(mu, exact), CLIENTS)
    state = run.once(run.init(fixed), 0)
    assert torch.allclose(state.theta.double(), fixed, rtol=0, atol=1e-4)


RAND4, TOP4 = Compressor(RandK(k=4)), Compressor(TopK(k=4, positions="index"))
TOP10_DOWN = Compressor(TopK(k=10, positions="index"), ErrorFeedback())


test_wrong_input = refused(
    [
        (lambda: FedProx(TEN, STEP, DENSE, DENSE), "client.proximal=0 makes FedProx FedAvg: give its mu, for .*=0.01"),
        (lambda: Scaffold(replace(TEN, momentum=0.9), STEP, DENSE), "plain steps, but client.momentum=0.9 was given"),
        (lambda: Scaffold(Adam(lr=0.1), STEP, DENSE), "needs plain steps, but client=adam was given"),
        (lambda: Scallion(replace(TEN, clip_norm=1.0), STEP, DENSE, DENSE), "but client.clip_norm=1.0 was given"),
        (lambda: Scaffold(replace(TEN, proximal=0.1), STEP, DENSE), "client.proximal=0.1 does not go with SCAFFOLD"),
        (lambda: Scaffold(TEN, STEP, DENSE, alpha=0), r"algorithm.alpha=0 must be a number in \(0, 1\]"),
        (lambda: Scaffold(TEN, STEP, replace(TOP4, feedback=ErrorFeedback())), "compressor.feedback must be none"),
        (lambda: Scaffold(TEN, STEP, replace(RAND4, estimator=Spatial("avg"))), "compressor.estimator must be"),
        (lambda: Scallion(TEN, STEP, Compressor(MRCSign(block=8)), DENSE), "unbiased or only shrinks, and MRCSign as"),
        (lambda: Scallion(TEN, STEP, RAND4, TOP10_DOWN, sends="model"), "algorithm.sends=model needs a dense downlink"),
        (lambda: Scallion(TEN, STEP, RAND4, TOP4), "downlink.feedback=none makes the control variates .* differ for"),
        (lambda: Scallion(TEN, STEP, RAND4, RAND4), "downlink.feedback=none makes the control variates"),
        (lambda: Scallion(TEN, STEP, RAND4, Compressor(Dense("float16"))), "downlink.feedback=none makes the control"),
        (lambda: Run(Scallion(TEN, STEP, RAND4, DENSE, 0.2), CLIENTS).init(), r"is above 1 / \(1 \+ omega\) = 0.1 of"),
        (lambda: Run(Scaffold(TEN, STEP, RAND4, alpha=0.2), CLIENTS).init(), "take algorithm.alpha=null, or less"),
        (lambda: Run(Scaffold(TEN, STEP, Compressor(Eden())), CLIENTS).init(), "omega of Eden has no closed form:"),
        (lambda: FedDyn(TEN, RAND4), "FedDyn needs a compressor that only shrinks, not RandK as config"),
        (lambda: FedDyn(replace(TEN, proximal=0.1), DENSE), "client.proximal=0.1 does not go with FedDyn"),
        (lambda: FedDyn(TEN, replace(TOP4, feedback=ErrorFeedback())), "compressor.feedback must be none: FedDyn"),
        (lambda: FedDyn(TEN, Compressor.of(TopK(k=4), predictor="ef21")), "compressor.predictor must be none: FedDyn"),
    ]
)


def test_option_one_goes_with_momentum_and_a_given_alpha_with_any_codec() -> None:
    Scaffold(replace(TEN, momentum=0.9), STEP, DENSE, "I")
    Run(Scaffold(TEN, STEP, Compressor(Eden()), alpha=0.4), CLIENTS).init()


def test_the_mean_of_the_models_is_evaluated_beside_the_servers() -> None:
    run = Run(FedDyn(TEN, DENSE), CLIENTS)
    state = run.once(run.init(), 0)
    models = run.algorithm.evaluation_models(state, Key())
    first, mean = models["test"].theta[0], models["mean"].theta[0]
    assert torch.allclose(first, mean - state.control / 0.1)
    assert not torch.allclose(first, mean, atol=1e-2)


def test_weights_by_samples_minimise_the_mean_over_samples() -> None:
    """The weighted objective's optimum, which is not that of the mean over clients."""
    weight = torch.tensor([0.4, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05])

    class Weighted(Run):
        def cohort(self, index: int) -> Cohort:
            return Cohort.of(list(range(N)), weight)

    hessian = (weight.double()[:, None, None] * CLIENTS.hessians).sum(0)
    pull = (weight.double()[:, None] * CLIENTS.gradients(torch.zeros(D))).sum(0)
    optimum = torch.linalg.solve(hessian, -pull)
    run = Weighted(FedDyn(TEN, DENSE, weights="samples"), CLIENTS)
    *_, state = run.states(250)
    assert float((state.theta - optimum).square().sum() / optimum.square().sum()) < 1e-6
    assert CLIENTS.distance(optimum) > 0.1
    assert torch.allclose(state.control, weight @ state.controls, rtol=0, atol=1e-5)
    assert run.algorithm.full_participation
    assert not FedDyn(TEN, DENSE).full_participation


def test_any_local_solver_will_do() -> None:
    assert Run(FedDyn(Adam(lr=0.02, steps=10), DENSE), Heterogeneous(CLIENTS.hessians, CLIENTS.centres)).floor(60) < 0.2
