"""The clock against times by hand, limits, and what must be equal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedcomp.network.traffic.rounds import Round, round_of
from fedcomp.wire.legs import BROADCAST, UP, WORK, Leg, Legs
from tests.looped import looped
from tests.network.two_clients import THREE_EXCHANGES, TWO, clock, legs


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


def test_a_round_that_waits_for_its_last_leg() -> None:
    one = clock(trailing="wait")
    for total in (1.595, 3.190):
        one.advance(THREE_EXCHANGES)
        line = one.metrics()
        assert (line["time/total"], line["time/round"]) == (near(total), near(1.595))
        assert sum(line[f"time/{name}"] for name in ("downlink", "compute", "uplink")) == near(total, 1e-9)


def test_a_multicast_goes_at_the_rate_of_the_slowest_and_takes_the_channel() -> None:
    one = clock(down="multicast")
    one.advance(legs((BROADCAST, 2_000_000), (WORK, [100, 100]), (UP, [500_000, 1_000_000])))
    assert one.server == near(0.90)
    assert one.ready.tolist() == near([0.35, 0.42])  # type: ignore[arg-type]
    assert one.channel == near(0.2)
    one = clock(down="multicast")
    one.advance(THREE_EXCHANGES)
    assert one.server == near(1.445)


def test_a_leg_of_no_bits_costs_nothing_and_an_empty_round_no_time() -> None:
    one = clock()
    one.advance(legs((BROADCAST, 0), (WORK, [0, 0]), (UP, [0, 0])))
    one.advance(Round((), ()))
    assert (one.server, one.slowest, one.rounds) == (0.0, -1, 2)


def _broadcast_first(
    seed: int, num: int, rounds: int
) -> tuple[list[Round], list[Round], tuple[tuple[float, ...], ...]]:
    """The same bits as models (sent before training) and as steps (sent after it)."""
    rng = np.random.default_rng(seed)
    bits, ids = int(rng.integers(1, 10**6)), tuple(range(num))
    rates = tuple((*rng.uniform(0.1, 10, 2), rng.uniform(0, 0.2), rng.uniform(0, 0.01)) for _ in range(num))
    models, steps = [], []
    for _ in range(rounds):
        down = Leg(BROADCAST, "all", bits)
        rest = [Leg(WORK, "cohort", rng.integers(1, 50, num)), Leg(UP, "cohort", rng.integers(1, 10**6, num))]
        models.append(round_of(Legs(ids, [down, *rest]), num))
        steps.append(round_of(Legs(ids, [*rest, down]), num))
    return models, steps, rates


def _timed(rounds: list[Round], rates: tuple[tuple[float, ...], ...], deadline: float | None) -> tuple[Any, Any]:
    """(duration, who is late) of each round."""
    one, durations, late = clock(rates, deadline=deadline), [], []
    for each in rounds:
        if deadline is not None:
            late.append((one.seconds_of(each) > deadline).tolist())
            each = replace(each, on_time=~np.array(late[-1]))
        one.advance(each)
        durations.append(one.last)
    return durations, late


@looped("share", [None, 0.3, 0.7, 1.1])
def test_models_and_steps_of_equal_bits_take_equal_time_from_the_second_round_on(share: float | None) -> None:
    """500 random cases; with a deadline, a share of the slowest client's first round, also who is late."""
    patterns = set()
    for seed in range(125):
        models, steps, rates = _broadcast_first(seed, num=4, rounds=4)
        deadline = None if share is None else share * float(clock(rates).seconds_of(models[0]).max())
        (first, late), (other, others) = (_timed(rounds, rates, deadline) for rounds in (models, steps))
        assert first[1:] == near(other[1:], 1e-9)  # type: ignore[arg-type]
        assert first[0] >= other[0]
        assert late[1:] == others[1:]
        patterns.update(map(tuple, late))
    assert share is None or len(patterns) > 4, "some are late, and not the same ones"


def test_who_is_told_nothing_begins_at_once_and_who_is_still_receiving_delays_its_next_round() -> None:
    one = clock()
    one.advance(round_of(Legs((0,), [Leg(UP, "cohort", 1_000_000), Leg(BROADCAST, "all", 20_000_000)]), 2))
    assert one.server == near(1.05)
    assert one.ready.tolist() == near([1.05 + 2.05, 1.05 + 1.02])  # type: ignore[arg-type]
    one.advance(round_of(Legs((1,), [Leg(UP, "cohort", 4_000_000)]), 2))
    assert one.server == near(2.07 + 1 + 0.02)
    assert one.downlink == near(1.02), "waiting for an earlier leg counts as downlink"


def test_jitter_is_drawn_by_round_and_run() -> None:
    ends = {}
    for name, options in {"none": {}, "some": {"jitter": 0.3}, "seed": {"jitter": 0.3, "seed": 1}}.items():
        one = clock(TWO, **options)  # type: ignore[arg-type]
        one.advance(THREE_EXCHANGES)
        one.advance(THREE_EXCHANGES)
        ends[name] = one.last, one.server - one.last
    assert len({time for pair in ends.values() for time in pair}) == 6
