"""The clock against times by hand, limits, and what must be equal."""

import pytest

from fedcomp.network.traffic.rounds import Round, round_of
from fedcomp.wire.legs import BROADCAST, UP, WORK, Leg, Legs
from tests.network.two_clients import THREE_EXCHANGES, clock, legs


def near(value: float, rel: float = 1e-12) -> object:
    return pytest.approx(value, rel=rel, abs=1e-15)


def test_two_clients_and_three_exchanges_by_hand() -> None:
    one = clock()
    one.advance(THREE_EXCHANGES)
    assert one.metrics() == {
        "time/total": near(1.445),
        "time/downlink": near(0.275),
        "time/compute": near(0.100),
        "time/uplink": near(1.070),
        "time/round": near(1.445),
        "time/slowest": 1,
    }
    assert one.critical.tolist() == [1, 1]
    assert one.ready.tolist() == near([1.595, 1.490])  # type: ignore[arg-type]
    one.advance(THREE_EXCHANGES)
    line = one.metrics()
    assert (line["time/total"], line["time/round"]) == (near(3.040), near(1.595))
    parts = [
        line[f"time/{name}"] - before for name, before in (("downlink", 0.275), ("compute", 0.1), ("uplink", 1.07))
    ]
    assert parts == [near(0.425), near(0.100), near(1.070)]
    assert sum(line[f"time/{name}"] for name in ("downlink", "compute", "uplink")) == near(3.040, 1e-9)


def test_a_leg_of_no_bits_costs_nothing_and_an_empty_round_no_time() -> None:
    one = clock()
    one.advance(legs((BROADCAST, 0), (WORK, [0, 0]), (UP, [0, 0])))
    one.advance(Round((), ()))
    assert (one.server, one.slowest, one.rounds) == (0.0, -1, 2)


def test_who_is_told_nothing_begins_at_once_and_who_is_still_receiving_delays_its_next_round() -> None:
    one = clock()
    one.advance(round_of(Legs((0,), [Leg(UP, "cohort", 1_000_000), Leg(BROADCAST, "all", 20_000_000)]), 2))
    assert one.server == near(1.05)
    assert one.ready.tolist() == near([1.05 + 2.05, 1.05 + 1.02])  # type: ignore[arg-type]
    one.advance(round_of(Legs((1,), [Leg(UP, "cohort", 4_000_000)]), 2))
    assert one.server == near(2.07 + 1 + 0.02)
    assert one.downlink == near(1.02), "waiting for an earlier leg counts as downlink"
