"""Every method that takes weights which do not sum to 1, as a network with a deadline may have them, goes by them."""

from dataclasses import dataclass, fields, replace

import pytest
import torch
from torch import Tensor

from fedcomp.algorithm.fit import check_deadline
from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import flatten
from fedcomp.network.links.fixed import FixedLinks
from fedcomp.participation.full import Full
from fedcomp.random.keys import Key
from tests.algorithm.conformance_cases import CASES
from tests.conformance import world
from tests.conformance.algorithm import AlgorithmCase
from tests.parts import ServerSgd
from tests.thorough import thorough

NETWORK = FixedLinks(down_bps=1e6, up_bps=1e6, deadline=1.0)


@dataclass(frozen=True)
class Scaled(Full):
    """Some of the clients, with so many times their weights."""

    scale: float = 1.0

    def sample(self, key: Key, importance: Tensor, round_index: int = 0) -> Cohort:
        cohort = world.SOME.sample(key, importance, round_index)
        return replace(cohort, weight=self.scale * cohort.weight)


FIRST = {type(case.algorithm): case for case in reversed(CASES)}
OTHERS = [case for case in CASES if FIRST[type(case.algorithm)] is not case]


@pytest.mark.parametrize("case", [*FIRST.values(), *thorough(OTHERS)], ids=lambda case: case.name)
def test_halved_weights_change_what_is_learnt_unless_a_method_says_so(case: AlgorithmCase) -> None:
    """All that the server and the clients hold counts, as models may be theirs alone."""
    method, sim = case.algorithm, case.simulation()
    if any(field.name == "server" for field in fields(method)):
        method = replace(method, server=ServerSgd())  # Adam's step is as long for any update
    try:
        check_deadline(method, NETWORK, sim.model)
    except ValueError:
        return  # there is no deadline
    ended = []
    for scale in (1.0, 0.5):
        sim = replace(case.simulation(rounds=2, participation=Scaled(scale=scale)), algorithm=method)
        ended.append(flatten(world.run(sim)))
    same = all(torch.allclose(ended[1][name], one, rtol=1e-5, atol=1e-6) for name, one in ended[0].items())
    assert same == method.normalises_weights
