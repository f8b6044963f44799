"""The same link for every client."""

from dataclasses import dataclass

import numpy as np

from fedcomp.network.links.contract import Links, Network, Rate, Seconds


@dataclass(frozen=True, kw_only=True)
class FixedLinks(Network):
    """One rate a direction; kappa is `seconds_per_gradient`."""

    down_bps: Rate
    up_bps: Rate
    rtt_s: Seconds = 0.0
    seconds_per_gradient: Seconds = 0.0

    def links(self, num_clients: int) -> Links:
        """N times the same."""
        one = np.ones(num_clients)
        work = one * self.seconds_per_gradient
        return self.made(one * self.down_bps, one * self.up_bps, one * self.rtt_s, work)
