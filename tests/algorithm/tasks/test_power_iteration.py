"""Power iteration against numpy's, and the direction against numpy's eigenvector."""

from functools import partial

import numpy as np
import pytest

from fedcomp.algorithm.tasks.power_iteration import PowerIteration
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.model.tasks.principal_direction import PrincipalDirection
from fedcomp.wire import Ledger
from tests.conformance import world

DENSE = Compressor(Dense())
CENTRED = partial(PrincipalDirection, centre="global")


def _matrix(sim, centred: bool) -> np.ndarray:
    """[F, F] mean of the clients' matrices, weighted by their samples, client by client."""
    x, ends = sim.dataset.train.x.double().numpy(), np.cumsum(world.SIZES)
    x = x - (x[: ends[-1]].mean(0) if centred else 0)
    parts = [x[end - size : end] for size, end in zip(world.SIZES, ends)]
    return sum(len(part) / ends[-1] * (part.T @ part) / len(part) for part in parts)


@pytest.mark.parametrize(("module", "centred"), [(PrincipalDirection, False), (CENTRED, True)])
def test_rounds_are_numpys_and_end_at_numpys_eigenvector(module, centred: bool) -> None:
    sim = world.simulation(PowerIteration(DENSE, DENSE, 3), module, world.FULL, rounds=200)
    matrix, state = _matrix(sim, centred), sim.init()
    w = state.theta.double().numpy()
    assert np.linalg.norm(w) == pytest.approx(1, abs=1e-6)
    assert (w >= 0).all()
    for index in range(3):
        state, _ = sim.round(index, state, Ledger())
        w = matrix @ w
        w /= np.linalg.norm(w)
        assert state.theta.numpy() == pytest.approx(w, abs=1e-6)
    top = np.linalg.eigh(matrix)[1][:, -1]
    measured = sim.test_metrics(3, state)["test/distance"]
    assert measured == pytest.approx(1 - (w @ top) ** 2, rel=1e-4)
    assert sim.test_metrics(200, world.run(sim))["test/distance"] < 1e-11


def test_correlation_of_equal_clients_is_its_largest() -> None:
    """Seven clients with the same sample send the same vector: R2/R1 = n - 1."""
    data = world.dataset()
    same = data.train.x[:1].expand(len(data.train), -1).contiguous()
    data = type(data)("same", type(data.train)(same, data.train.y), data.test, "classification", data.num_outputs)
    sim = world.simulation(PowerIteration(DENSE, DENSE), PrincipalDirection, world.FULL, data=data, sizes=(2,) * 7)
    _, result = sim.round(0, sim.init(), Ledger())
    assert float(result.metrics["vectors/correlation"]) == pytest.approx(6, abs=1e-4)


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"algorithm.batch_size=0 must be a whole number, 1 or more"):
        PowerIteration(DENSE, DENSE, 0)
    with pytest.raises(ValueError, match=r"model.centre=client must be one of none, global"):
        PrincipalDirection((2,), [], "client")
