"""Messages that nobody needs before the first round with clients are not sent in it, though round 0 had none."""

import pytest

from fedcomp.algorithm.contract import Algorithm
from fedcomp.algorithm.fedscalar import FedScalar
from fedcomp.algorithm.lora.flasc import FLASC
from fedcomp.algorithm.low_rank.powersgd import PowerSGD
from fedcomp.wire import WireLink
from tests.algorithm.conformance_cases import CASES
from tests.conformance import world
from tests.parts import Cohorts, Compressor, ServerSgd, Sgd, TopK, fedavg
from tests.rounds import rounds

SGD, TOP5, NOBODY, SOME = Sgd(lr=0.1, batch_size=4), TopK(k=5), (), (0, 1, 2)
METHODS: list[Algorithm] = [
    fedavg(SGD, Compressor.of(TOP5, predictor="aggregate"), sends="model"),
    FLASC(SGD, ServerSgd(), Compressor(TOP5), mask="update"),
    PowerSGD(SGD, ServerSgd(), rank=1, min_ratio=1.0, sends="model"),
    FedScalar(SGD, sends="scalar"),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.config_name)
def test_a_first_round_costs_the_same_after_one_without_clients(method: Algorithm) -> None:
    case = next(case for case in CASES if type(case.algorithm) is type(method))
    first, *_ = _downlink(case, method, SOME)
    nothing, late, later = _downlink(case, method, NOBODY, SOME)
    assert nothing == 0
    assert late == first < later


def _downlink(case, method: Algorithm, *cohorts: tuple[int, ...]) -> list[int]:
    own = {"participation": Cohorts(clients=cohorts), "rounds": 3, "data": case.data, "link": WireLink}
    return [one.bits["downlink"] for one in rounds(world.simulation(method, case.module, **own))]
