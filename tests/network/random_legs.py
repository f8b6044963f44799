"""Legs of random rounds, for tests that compare two ways to compute a clock's times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedcomp.wire.legs import ALL, BROADCAST, COHORT, RELAY, UNICAST, UP, WORK, XOR_RELAY, Leg, Legs

MOST = 10_000_000
"""Bits of a message at most."""


def random_legs(rng: np.random.Generator, num_clients: int, num: int, choose: Callable[[list[str]], list[str]]) -> Legs:
    """A round of `num` of the clients; `choose` takes the names of all kinds of legs and returns the round's."""
    clients = tuple(sorted(rng.choice(num_clients, num, replace=False).tolist()))
    listed = tuple(sorted(rng.choice(num_clients, 2, replace=False).tolist()))
    menu: dict[str, Callable[[], Leg]] = {
        "broadcast": lambda: Leg(BROADCAST, COHORT, int(rng.integers(0, MOST))),
        "to all": lambda: Leg(BROADCAST, ALL, np.array([rng.integers(1, MOST)])),
        "to some": lambda: Leg(BROADCAST, listed, 1_000_000),
        "unicast": lambda: Leg(UNICAST, COHORT, _amount(rng, num)),
        "work": lambda: Leg(WORK, COHORT, _amount(rng, num, 50)),
        "same work": lambda: Leg(WORK, COHORT, 100),
        "up": lambda: Leg(UP, COHORT, _amount(rng, num)),
        "short up": lambda: Leg(UP, COHORT, 160),
        "relay": lambda: Leg(RELAY, COHORT, _amount(rng, num)),
        "xor relay": lambda: Leg(XOR_RELAY, COHORT, 50_000),
    }
    chosen = choose(list(menu))
    return Legs(clients, [menu[name]() for name in chosen] if num else [])


def _amount(rng: np.random.Generator, num: int, most: int = MOST) -> Any:
    """A number, or one a client, some of them 0."""
    return int(rng.integers(0, 3)) * most if rng.random() < 0.5 else rng.integers(0, 3, num) * rng.integers(1, most)
