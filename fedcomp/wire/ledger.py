"""The count of every bit that crossed a link, and beside it of the gradients that were computed for them."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

LINKS = ("uplink", "downlink", "broadcast")
GRADIENTS = "gradients"


class Ledger:
    """Cumulative bits by link, as they are and as the papers count them.

    uplink: clients to server. downlink: server to clients, a broadcast counted once for every receiver.
    broadcast: the same traffic with a broadcast counted once. Counts that depend on data are added on their device
    and read only when asked for, so counting does not make a GPU wait.

    Gradients are counted in samples: a gradient over a batch of 10 counts 10 component gradients.

    Attributes:
        client_rounds: sum over rounds of the clients that took part; the denominator of bits per parameter.
    """

    def __init__(self) -> None:
        self.client_rounds = 0
        self._fixed = dict.fromkeys((*_names(), GRADIENTS), 0)
        self._varying: dict[str, Tensor] = {}

    def add(self, link: str, bits: int | Tensor, paper_bits: int | Tensor) -> None:
        """Count a message on `link` (one of LINKS): its true bits and its paper's count."""
        self._add(link, bits)
        self._add(f"paper/{link}", paper_bits)

    def add_round(self, num_clients: int) -> None:
        """Count a round in which `num_clients` took part (0 for an empty one)."""
        self.client_rounds += num_clients

    def add_gradients(self, num: int | Tensor) -> None:
        """Count component gradients that clients computed."""
        self._add(GRADIENTS, num)

    def merge(self, other: Ledger) -> None:
        """Add what another ledger counted."""
        for amounts in (other._fixed, other._varying):
            for name, amount in amounts.items():
                self._add(name, amount)
        self.client_rounds += other.client_rounds

    def copy(self) -> Ledger:
        """The counts as they are now, whatever is counted later."""
        other = Ledger()
        other.merge(self)
        return other

    @property
    def unread(self) -> Mapping[str, Tensor]:
        """Counts that lie on their device, which `counters` would wait for."""
        return dict(self._varying)

    def take_in(self, read: Mapping[str, int]) -> None:
        """Count what was read of `unread` instead of it."""
        for name, amount in read.items():
            self._fixed[name] += amount
            del self._varying[name]

    def counters(self) -> dict[str, int]:
        """Everything counted so far, as integers; the form that is checkpointed."""
        self.take_in({name: int(amount) for name, amount in self._varying.items()})
        return {**self._fixed, "client_rounds": self.client_rounds}

    def restore(self, counters: Mapping[str, int]) -> None:
        """Continue from `counters()` of an earlier run."""
        self._varying.clear()
        self._fixed = {name: int(counters[name]) for name in _names()} | {GRADIENTS: int(counters.get(GRADIENTS, 0))}
        self.client_rounds = int(counters["client_rounds"])

    def record(self, dim: int) -> dict[str, int | float]:
        """The ledger's part of a metrics line.

        Returns:
            `bits/<link>` and `bits/total` (uplink + downlink), cumulative over clients; `bpp/<link>` and `bpp/total`,
            bits per parameter per client and round, averaged so far; and the same under `paper/` for the links on
            which a paper counts otherwise; `gradients`, cumulative over clients, if there were any.
        """
        counters = self.counters()
        line = _lines(counters, "", dim, self.client_rounds)
        if any(counters[f"paper/{link}"] != counters[link] for link in LINKS):
            line |= _lines(counters, "paper/", dim, self.client_rounds)
        return line | ({GRADIENTS: counters[GRADIENTS]} if counters[GRADIENTS] else {})

    def _add(self, name: str, amount: int | Tensor) -> None:
        if isinstance(amount, Tensor):
            self._varying[name] = self._varying[name] + amount if name in self._varying else amount
        else:
            self._fixed[name] += amount


def _names() -> list[str]:
    return [prefix + link for prefix in ("", "paper/") for link in LINKS]


def _lines(counters: Mapping[str, int], prefix: str, dim: int, client_rounds: int) -> dict[str, int | float]:
    bits = {link: counters[prefix + link] for link in LINKS}
    bits["total"] = bits["uplink"] + bits["downlink"]
    per = max(dim * client_rounds, 1)
    line: dict[str, int | float] = {f"{prefix}bits/{link}": amount for link, amount in bits.items()}
    return line | {f"{prefix}bpp/{link}": amount / per for link, amount in bits.items()}
