"""An algorithm or local solver of the user's own: what it leaves out has a default, or is named when it is built."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Models, Setup
from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key
from fedcomp.simulation.simulation import Simulation
from tests.looped import looped


@dataclass(frozen=True)
class Still(Algorithm):
    """Nobody trains."""

    client: Any

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> Models:
        return Models(theta, stats)

    def round(self, state: Models, cohort: Cohort, ctx: Context) -> tuple[Models, Metrics]:
        return state, {}


@dataclass(frozen=True)
class Unfinished(Algorithm):
    """Has no `round`."""

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> Models:
        return Models(theta, stats)


@dataclass(frozen=True)
class Misweighted(Still):
    """Says neither of the two words."""

    weights = "sample"


class Foreign:
    """Inherits from nothing."""

    init, round = Still.init, Still.round


def _node(part: type, partial: bool = True) -> dict[str, object]:
    return {"_target_": f"{__name__}.{part.__name__}", **({"_partial_": True} if partial else {})}


def _build(**parts: dict[str, object]) -> Simulation:
    config = compose(["num_clients=4", "rounds=1"])
    for name, node in parts.items():
        config[name] = node
    return build_simulation(config, torch.device("cpu"))[0]


def test_what_an_algorithm_leaves_out_has_a_default() -> None:
    simulation = _build(algorithm=_node(Still))
    algorithm, state = simulation.algorithm, simulation.init()
    assert simulation.importance.tolist() == simulation.shards.sizes.tolist()
    models = algorithm.evaluation_models(state, Key(("test",)))
    assert list(models) == ["test"]
    assert torch.equal(models["test"].theta, state.theta[None])
    assert algorithm.batch_size == algorithm.solver.most_samples
    assert algorithm.compressors == {}


def test_parts_of_an_algorithm_are_its_fields() -> None:
    algorithm = _build().algorithm
    assert isinstance(algorithm, FedAvg)
    assert algorithm.solver is algorithm.client
    assert algorithm.compressors == {"uplink": algorithm.uplink, "downlink": algorithm.downlink}


@looped(
    "algorithm, message",
    [
        (Unfinished, "cannot build .*Unfinished: TypeError: Can't instantiate abstract class Unfinished .*round"),
        (Foreign, "Foreign, which is no Algorithm: let its class inherit from Algorithm"),
        (Misweighted, "algorithm.weights=sample must be one of samples, tokens, uniform"),
    ],
)
def test_what_must_be_there_is_named(algorithm: type, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _build(algorithm=_node(algorithm, partial=algorithm is not Foreign))


def test_a_local_solver_inherits_too() -> None:
    with pytest.raises(ValueError, match="Foreign, which is no LocalSolver"):
        _build(algorithm=_node(Still), client=_node(Foreign, partial=False))
