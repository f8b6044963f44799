"""Sharing a cell's uplink: by hand, against virtual time, and with its work conserved."""

import heapq

import numpy as np
import pytest

from fedcomp.network.cell import fair_level, shared_uplink
from fedcomp.wire.legs import UP
from tests.looped import looped
from tests.network.two_clients import clock, legs

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


def test_cells_do_not_disturb_each_other() -> None:
    rates = ((np.inf, np.inf, 0, 0),) * 2
    for cells, seconds in ((1, 3.0), (2, 2.0)):
        one = clock(rates, cells=cells, capacity_bps=MBIT)
        one.advance(legs((UP, [1_000_000, 2_000_000])))
        assert one.server == pytest.approx(seconds, rel=1e-12)
