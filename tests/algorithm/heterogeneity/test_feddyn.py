"""FedDyn: the optimum of the mean over samples, wrong input; its rounds are in `test_plain_rounds.py`."""

from dataclasses import replace

import torch

from fedcomp.algorithm.heterogeneity.feddyn import FedDyn
from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key
from tests.algorithm.heterogeneous import D, Heterogeneous, N, Run, problem
from tests.parts import DENSE, Adam, Compressor, ErrorFeedback, RandK, Sgd, TopK
from tests.refused import refused

TOP4 = Compressor(TopK(k=4, positions="index"))
CLIENTS = problem(0)
TEN = Sgd(lr=0.1, steps=10)


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


test_wrong_input = refused(
    [
        ({"uplink": Compressor(RandK(k=4))}, "FedDyn needs a compressor that only shrinks, not RandK as config"),
        ({"client": replace(TEN, proximal=0.1)}, "client.proximal=0.1 does not go with FedDyn"),
        ({"uplink": replace(TOP4, feedback=ErrorFeedback())}, "compressor.feedback must be none: FedDyn"),
        ({"uplink": Compressor.of(TopK(k=4), predictor="ef21")}, "compressor.predictor must be none: FedDyn"),
    ],
    lambda **options: FedDyn(**({"client": TEN, "uplink": DENSE} | options)),
)


def test_any_local_solver_will_do() -> None:
    assert Run(FedDyn(Adam(lr=0.02, steps=10), DENSE), Heterogeneous(CLIENTS.hessians, CLIENTS.centres)).floor(60) < 0.2
