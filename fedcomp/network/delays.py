"""What the exchanges of a round add to each client's clock: bits over rates, round trips, gradients, headers, jitter.

Shape legend: N clients.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedcomp.network.exchanges import Exchange, exchanges
from fedcomp.network.headers import Header
from fedcomp.network.links.contract import Links, Network
from fedcomp.network.traffic.rounds import Round
from fedcomp.random.keys import Key


@dataclass(frozen=True)
class Delays:
    """What an exchange adds to the clients' clocks, in seconds.

    Attributes:
        down, work, up: [N] D_i / r_i^d + tau_i / 2, kappa_i G_i with o_i, and U_i / r_i^u + tau_i / 2 where nobody
            shares an uplink; 0 where nothing is sent or computed.
        touched: [N] bool who receives or works. senders: numbers of the clients that send up, ascending.
        once: (seconds of the server's line, receivers) of what is sent once for several.
        shared: [N] bits up and own limits, for cells; None: there are none.
    """

    down: np.ndarray
    work: np.ndarray
    up: np.ndarray
    touched: np.ndarray
    senders: np.ndarray
    once: list[tuple[float, np.ndarray]]
    shared: tuple[np.ndarray, np.ndarray] | None


class RoundDelays:
    """The delays of a run's rounds.

    Args:
        network: its rules. links: the clients'. key: the run's, for jitter.
    """

    def __init__(self, network: Network, links: Links, key: Key) -> None:
        self._links, self._multicast, self._jitter = links, network.down == "multicast", network.jitter
        self._header = None if network.header is None else Header.of(network.header)
        self._key = Key(("network", "jitter", network.seed, *key.path))

    def of(self, one: Round, index: int) -> list[Delays]:
        """What each exchange of round `index` adds."""
        num = len(self._links.down)
        factor: np.ndarray | float = 1.0
        if self._jitter:
            drawn = self._key.fold_in(index).normal(torch.arange(num, device="cpu"), 1)
            factor = np.exp(self._jitter * drawn.to(torch.float64).numpy()[:, 0])
        found: list[Delays] = []
        starting = True  # the first work of a round pays for its start
        for exchange in exchanges(one, num, self._multicast):
            found.append(self._delays_of(exchange, self._links.down * factor, self._links.up * factor, starting))
            starting = starting and not exchange.work.any()
        return found

    def line(self, bits: Any) -> Any:
        """Bits on the line, with headers."""
        return bits if self._header is None else self._header.line_bits(bits)

    def _delays_of(self, exchange: Exchange, down: np.ndarray, up: np.ndarray, starting: bool) -> Delays:
        """With rates [N] of this round."""
        links, receives, works, sends = self._links, exchange.down > 0, exchange.work > 0, exchange.up > 0
        work = links.work * exchange.work
        if starting:
            work = work + np.where(works, links.start, 0.0)
        touched, once = receives | works, []
        for bits, who in exchange.once:
            once.append((self.line(bits) / float(down[who].min()), who))
            touched[who] = True
        bits_up = self.line(exchange.up)
        return Delays(
            np.where(receives, self.line(exchange.down) / down + links.rtt / 2, 0.0),
            work,
            np.where(sends, bits_up / up + links.rtt / 2, 0.0),
            touched,
            np.flatnonzero(sends),
            once,
            (bits_up, up) if len(links.capacity) else None,
        )
