"""Clients of a cell share its uplink by max-min fairness.

While the set A is sending, client i gets x_i = min(r_i, lambda) with sum x_i = min(C, sum r_i): what a slow client
cannot use, and what is left when one is done, goes to the others. Begun all at once and without limits of their own,
sorted by bits, f_(j) = w + (U_(1) + ... + U_(j) + (M - j) U_(j)) / C.

Shape legend: M clients that send.
"""

import numpy as np


def shared_uplink(begin: np.ndarray, bits: np.ndarray, limit: np.ndarray, capacity: float) -> np.ndarray:
    """[M] seconds at which each transfer is done.

    One event after another, 2 M at most, with a new level at each; ties go to the smaller number, so that results are
    the same bits everywhere.

    Args:
        begin: [M] when a client begins. bits: [M] float64 above 0. limit: [M] its own rate, bit/s.
        capacity: C in bit/s.
    """
    done = np.array(begin, dtype=np.float64)
    left = np.array(bits, dtype=np.float64)
    arrivals = np.argsort(begin, kind="stable")
    active = np.zeros(0, np.int64)
    now, waiting = 0.0, 0
    while waiting < len(arrivals) or len(active):
        if not len(active):
            now = max(now, float(begin[arrivals[waiting]]))
        while waiting < len(arrivals) and begin[arrivals[waiting]] <= now:
            active = np.sort(np.append(active, arrivals[waiting]))
            waiting += 1
        rate = np.minimum(limit[active], fair_level(limit[active], capacity))
        needed = left[active] / rate
        first = float(needed.min())
        until = float(begin[arrivals[waiting]]) if waiting < len(arrivals) else np.inf
        if until < now + first:
            left[active] = left[active] - rate * (until - now)
            now = until
            continue
        now = now + first
        over = needed == first
        done[active[over]] = now
        kept = ~over
        left[active[kept]] = np.maximum(left[active[kept]] - rate[kept] * first, 0.0)
        active = active[kept]
    return done


def fair_level(limit: np.ndarray, capacity: float) -> float:
    """lambda: the rate of everybody whose own limit is not below it; inf if all limits together fit."""
    ascending = np.sort(limit)
    used = np.concatenate(([0.0], np.cumsum(ascending)[:-1]))
    with np.errstate(invalid="ignore"):  # inf - inf beyond the first limit that is reached
        share = (capacity - used) / np.arange(len(ascending), 0, -1)
    reached = ascending >= share
    return float(share[reached.argmax()]) if reached.any() else np.inf
