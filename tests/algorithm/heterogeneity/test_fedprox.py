"""FedProx: FedAvg with a pull; its bias is that of the published fixed point."""

from dataclasses import replace

import pytest
import torch

from fedcomp.algorithm.heterogeneity.fedprox import FedProx
from tests.algorithm.heterogeneous import D, Run, problem
from tests.parts import DENSE, FedAvg, ServerSgd, Sgd

STEP, CLIENTS = ServerSgd(), problem(0)
TEN = Sgd(lr=0.1, steps=10)


def _prox(mu: float, client: Sgd = TEN) -> FedProx:
    return FedProx(replace(client, proximal=mu), STEP, DENSE, DENSE, "uniform")


def test_without_a_pull_it_is_fedavg_and_refused() -> None:
    tiny, plain = _prox(1e-30), FedAvg(TEN, STEP, DENSE, DENSE, "uniform")
    for here, there in zip(Run(tiny, CLIENTS).states(5), Run(plain, CLIENTS).states(5), strict=True):
        assert torch.equal(here.theta, there.theta)
    with pytest.raises(
        ValueError, match="client.proximal=0 makes FedProx FedAvg: give its mu, for .*=0.01, or take al"
    ):
        FedProx(TEN, STEP, DENSE, DENSE)


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
