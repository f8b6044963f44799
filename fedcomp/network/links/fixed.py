"""The same link for every client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcomp.network.links.contract import Links, Network, check_rate, check_seconds


@dataclass(frozen=True, kw_only=True)
class FixedLinks(Network):
    """One rate a direction.

    Attributes:
        down_bps, up_bps: bit/s; inf: no time. rtt_s: round trip in seconds.
        seconds_per_gradient: kappa, seconds of a component gradient.
    """

    down_bps: float
    up_bps: float
    rtt_s: float = 0.0
    seconds_per_gradient: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rate("network.down_bps", self.down_bps)
        check_rate("network.up_bps", self.up_bps)
        check_seconds("network.rtt_s", self.rtt_s)
        check_seconds("network.seconds_per_gradient", self.seconds_per_gradient)

    def links(self, num_clients: int) -> Links:
        """N times the same."""
        one = np.ones(num_clients)
        work = one * self.seconds_per_gradient
        return self.made(one * self.down_bps, one * self.up_bps, one * self.rtt_s, work)
