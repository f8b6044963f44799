"""Clients that differ: rates, round trips and speed of computing are lognormal, drawn by key.

rate = m exp(sigma z) with median m; the setting is the spread rho = q90 / q10, sigma = ln rho / (2 z_0.9). The two
rates of a client are correlated: z_u = c z_d + sqrt(1 - c^2) z'. Draws depend on client and `network.seed` alone, so
that the same clients take part in every method, seed, repetition and number of clients of a comparison.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch

from fedcomp.core.ranges import Within
from fedcomp.network.links.contract import Links
from fedcomp.network.links.fixed import FixedLinks
from fedcomp.random.keys import Key

DECILES = 2.5631031310892007
"""2 z_0.9: what separates the tenth from the ninetieth percentile of a standard normal."""
Spread = Annotated[float, Within("[1, inf)", "the 90th over the 10th percentile")]


@dataclass(frozen=True, kw_only=True)
class LognormalLinks(FixedLinks):
    """`FixedLinks` gives the medians; a spread is q90 / q10, `correlation` c."""

    spread_down: Spread = 1.0
    spread_up: Spread = 1.0
    spread_rtt: Spread = 1.0
    spread_gradient: Spread = 1.0
    correlation: Annotated[float, Within("[-1, 1]")] = 0.0

    def links(self, num_clients: int) -> Links:
        """One draw a client."""
        ids = torch.arange(num_clients, device="cpu")
        draws = Key(("network", "clients", self.seed)).normal(ids, 4).to(torch.float64).numpy()
        z_down, other, z_work, z_rtt = draws.T
        z_up = self.correlation * z_down + math.sqrt(1 - self.correlation**2) * other
        return self.made(
            self.down_bps * np.exp(sigma(self.spread_down) * z_down),
            self.up_bps * np.exp(sigma(self.spread_up) * z_up),
            self.rtt_s * np.exp(sigma(self.spread_rtt) * z_rtt),
            self.seconds_per_gradient * np.exp(sigma(self.spread_gradient) * z_work),
        )


def sigma(spread: float) -> float:
    """Deviation of the logarithm of a lognormal whose q90 / q10 is `spread`."""
    return math.log(spread) / DECILES
