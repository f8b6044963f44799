"""The clock against times by hand: limits, what must be equal, cells that share an uplink, headers."""

import heapq
from typing import Any

import numpy as np
import pytest

from fedcomp.network.cell import fair_level, shared_uplink
from fedcomp.network.headers import Header
from fedcomp.network.retime import retime
from fedcomp.network.traffic.file import Traffic
from fedcomp.network.traffic.recorder import RecordedRepetition, TrafficRecorder
from fedcomp.network.traffic.rounds import Round
from fedcomp.random.keys import Key
from fedcomp.wire.legs import BROADCAST, UP, WORK
from tests.looped import looped
from tests.network.two_clients import THREE_EXCHANGES, clock, legs


def near(value: float, rel: float = 1e-12) -> object:
    return pytest.approx(value, rel=rel, abs=1e-15)


def test_two_clients_and_three_exchanges_by_hand() -> None:
    one = clock()
    one.advance(THREE_EXCHANGES)
    parts = {"time/downlink": near(0.275), "time/compute": near(0.100), "time/uplink": near(1.070)}
    assert one.metrics() == {"time/total": near(1.445), **parts, "time/round": near(1.445), "time/slowest": 1}
    assert one.critical.tolist() == [1, 1]
    assert one.ready.tolist() == near([1.595, 1.490])  # type: ignore[arg-type]
    one.advance(THREE_EXCHANGES)
    line = one.metrics()
    assert (line["time/total"], line["time/round"]) == (near(3.040), near(1.595))
    assert line["time/downlink"] - 0.275 == near(0.425)
    assert (line["time/compute"] - 0.1, line["time/uplink"] - 1.07) == (near(0.100), near(1.070))
    assert sum(line[f"time/{name}"] for name in ("downlink", "compute", "uplink")) == near(3.040, 1e-9)


def test_recorded_rounds_have_the_times_of_a_clock_that_goes_through_them_once() -> None:
    one, traffic, expected = clock(), Traffic(2, ((THREE_EXCHANGES,) * 3,)), {}
    times, (other,) = retime(traffic, one.network, [Key(("run", 0))], [3, 0, 1, 4])
    for number in range(4):
        expected[number] = one.metrics()
        one.advance(THREE_EXCHANGES)
    assert times == {number: expected[number] for number in (0, 1, 3)}
    both = TrafficRecorder(2, [RecordedRepetition(other), RecordedRepetition(other)], repeated=True)
    assert both.critical.tolist() == [2 * often for often in other.critical.tolist()] == [6, 6]


def test_a_leg_of_no_bits_costs_nothing_and_an_empty_round_no_time() -> None:
    one = clock()
    one.advance(legs((BROADCAST, 0), (WORK, [0, 0]), (UP, [0, 0])))
    one.advance(Round((), ()))
    assert (one.server, one.slowest, one.rounds) == (0.0, -1, 2)


MBIT = 1e6
BITS = np.array([1.0, 2.0, 3.0]) * MBIT
NONE = np.full(3, np.inf)


@looped(
    "begin, limit, done",
    [
        ((0, 0, 0), NONE, (1 / 2, 5 / 6, 1)),
        ((0, 0.1, 0.4), NONE, (0.7 / 3, 0.6, 1)),
        ((0, 0, 0), np.array([MBIT, np.inf, np.inf]), (1, 0.8, 1)),
        ((0, 0, 0), np.array([np.inf, 2.2 * MBIT, np.inf]), (0.5, 21 / 22, 1)),
    ],
)
def test_three_uplinks_by_hand(begin: tuple[float, ...], limit: np.ndarray, done: tuple[float, ...]) -> None:
    assert shared_uplink(np.array(begin, float), BITS, limit, 6 * MBIT) == pytest.approx(done, rel=1e-12)


def _by_virtual_time(begin: np.ndarray, bits: np.ndarray, capacity: float) -> np.ndarray:
    """Without own limits: dV/dt = C / |A|, and i is done when V = V(w_i) + U_i."""
    done, order = np.empty(len(begin)), np.argsort(begin, kind="stable")
    heap: list[tuple[float, int]] = []
    now = virtual = 0.0
    place = 0
    while place < len(order) or heap:
        coming = begin[order[place]] if place < len(order) else np.inf
        ends = now + (heap[0][0] - virtual) * len(heap) / capacity if heap else np.inf
        if coming <= ends:
            virtual += (coming - now) * capacity / len(heap) if heap else 0.0
            now = coming
            heapq.heappush(heap, (virtual + bits[order[place]], int(order[place])))
            place += 1
        else:
            virtual, who = heapq.heappop(heap)
            now = done[who] = ends
    return done


def test_random_cells_against_virtual_time() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        num, capacity = int(rng.integers(1, 12)), rng.uniform(1, 10)
        bits, begin = rng.uniform(0.1, 5, num), rng.uniform(0, 2, num)
        none = np.full(num, np.inf)
        apart = shared_uplink(begin, bits, none, capacity)
        assert apart == pytest.approx(_by_virtual_time(begin, bits, capacity), rel=1e-9)
        assert shared_uplink(np.zeros(num), bits, none, capacity).max() == pytest.approx(bits.sum() / capacity)


def test_no_rate_is_above_its_limit_and_none_is_left_over() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        limit, capacity = rng.uniform(0.1, 3, int(rng.integers(1, 9))), rng.uniform(0.2, 9)
        rate = np.minimum(limit, fair_level(limit, capacity))
        assert rate.sum() == pytest.approx(min(capacity, limit.sum()), rel=1e-12)
    assert fair_level(np.full(2, np.inf), np.inf) == np.inf


TLS = {"message": 22, "packet": 40, "payload": 1460}


def test_the_table_of_line_bits() -> None:
    bits = np.array([0, 1, 32, 160, 61_738, 1_974_592, 61_864_256])
    assert Header.of(TLS).line_bits(bits).tolist() == [0, 504, 528, 656, 63_840, 2_029_168, 63_559_472]
    assert Header.of(TLS).line_bits(32) == 528


@looped(
    "given, says",
    [
        ({"message": 1}, "must have message, packet, payload"),
        (3, r"network.header=3 must have message, packet, payload"),
        ({**TLS, "packet": -1}, r"network.header.packet=-1 must be a whole number, 0 or more: a number of bytes"),
        ({**TLS, "payload": 0}, r"network.header.payload=0 must be a whole number, 1 or more: a number of bytes"),
        ({**TLS, "message": float("nan")}, r"network.header.message=nan must be a whole number"),
    ],
)
def test_wrong_headers(given: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Header.of(given)
