"""Counts every bit that crosses a link, and the gradients that clients compute."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from fedcomp.core.cohort import Cohort
from fedcomp.wire.legs import Legs, RoundLog

LINKS = ("uplink", "downlink", "broadcast")
DIRECTIONS = ("uplink", "downlink")
GRADIENTS = "gradients"
PER_RECEIVER = "downlink_per_receiver"


class Ledger:
    """Cumulative bits by link: the bits that are sent, and the bits that a method's paper counts.

    uplink: clients to server. downlink: server to clients, with a broadcast counted once for every receiver.
    broadcast: the same messages, with a broadcast counted once. Counts that depend on data are summed on their device
    and read only by `counters` and `record`, so counting does not synchronise with a GPU.

    Gradients are counted in samples: a gradient over a batch of 10 is 10 component gradients.

    Attributes:
        client_rounds: sum over rounds of the cohort's size; the denominator of bits per parameter.
        receiver_rounds: sum over rounds of the number of clients that the server sent to: the cohort, or more if a
            message goes to idle clients too.
        num_in_cohort: clients of the current round; None: no round has begun.
        log: the legs of every round, for the clock of a network; None: nobody asks for them.
        logs: of repetitions, a log of each; `log` is then that of the repetition at work.
        legs: those of the current round; None: they are not kept.
        heard: as it was after the current round's last message up, and how many legs there were, if some client may
            be late; None: no message up yet, or nobody can be.
    """

    def __init__(self) -> None:
        self.client_rounds = 0
        self.receiver_rounds = 0
        self._receivers = 0  # of the current round
        self.num_in_cohort: int | None = None
        self._fixed = dict.fromkeys((*LINKS, *(f"paper/{link}" for link in LINKS), GRADIENTS), 0)
        self._varying: dict[str, Tensor] = {}
        self.log: RoundLog | None = None
        self.logs: Sequence[RoundLog] | None = None
        self.legs: Legs | None = None
        self.heard: tuple[Ledger, int] | None = None

    def add(self, link: str, bits: int | Tensor, paper_bits: int | Tensor) -> None:
        """Count a message on `link` (one of LINKS): the bits that are sent and the bits that the paper counts."""
        self._add(link, bits)
        self._add(f"paper/{link}", paper_bits)

    def add_round(self, num_clients: int) -> None:
        """Count a round with a cohort of `num_clients` (0: an empty one)."""
        self.client_rounds += num_clients
        self._receivers = 0
        self.add_receivers(num_clients)

    def begin_round(self, cohort: Cohort) -> None:
        """Count a round with this cohort, and keep its legs if there is a log."""
        self.add_round(cohort.size)
        self.num_in_cohort = cohort.size
        self.legs = Legs(cohort.clients) if self.log is not None else None
        self.heard = None

    def hear(self) -> None:
        """A message up is counted: what follows in this round, if it was the last one, answers it."""
        if self.legs is not None and self.log is not None and self.log.deadline is not None:
            so_far = self.copy()
            so_far._receivers = self._receivers
            self.heard = so_far, len(self.legs.made)

    def answer_as(self, other: "Ledger | None") -> None:
        """Replace the round's answers, what follows its last message up, by those of `other`'s round; None: none.

        What a server sends after it has heard the clients depends on who of them was late.
        """
        if self.heard is None:
            return
        (so_far, num_legs), legs = self.heard, self.legs
        assert legs is not None
        self._fixed, self._varying = dict(so_far._fixed), dict(so_far._varying)
        self.receiver_rounds, self._receivers = so_far.receiver_rounds, so_far._receivers
        del legs.made[num_legs:]
        if other is None or other.heard is None:
            return
        before, num_legs = other.heard
        for name, fixed in other._fixed.items():
            self._add(name, fixed - before._fixed[name])
        for name, varying in other._varying.items():
            self._add(name, varying - before._varying.get(name, 0))
        self.add_receivers(other._receivers)
        assert other.legs is not None
        legs.take(other.legs, num_legs)

    def end_round(self) -> None:
        """Append the round's legs to the log."""
        if self.log is not None and self.legs is not None:
            self.log.rounds.append(self.legs)
        self.legs = None

    def add_receivers(self, num_receivers: int) -> None:
        """Record that a message of this round went to `num_receivers` clients.

        The largest number of a round counts: smaller groups of receivers are subsets of the largest.
        """
        self.receiver_rounds += max(0, num_receivers - self._receivers)
        self._receivers = max(self._receivers, num_receivers)

    def add_gradients(self, num: int | Tensor) -> None:
        """Add to the number of component gradients that clients computed."""
        self._add(GRADIENTS, num)

    def merge(self, other: "Ledger") -> None:
        """Add the counts of another ledger."""
        for amounts in (other._fixed, other._varying):
            for name, amount in amounts.items():
                self._add(name, amount)
        self.client_rounds += other.client_rounds
        self.receiver_rounds += other.receiver_rounds

    def copy(self) -> "Ledger":
        """A copy that later counts do not change."""
        other = Ledger()
        other.merge(self)
        return other

    @property
    def device_counts(self) -> Mapping[str, Tensor]:
        """Counts that are still tensors on a device; `counters` synchronises to read them."""
        return dict(self._varying)

    def resolve(self, read: Mapping[str, int]) -> None:
        """Replace these `device_counts` by their values, which were read from the device."""
        for name, amount in read.items():
            self._fixed[name] += amount
            del self._varying[name]

    def counters(self) -> dict[str, int]:
        """All counts as integers, the form in which they are checkpointed."""
        self.resolve({name: int(amount) for name, amount in self._varying.items()})
        return {**self._fixed, "client_rounds": self.client_rounds, "receiver_rounds": self.receiver_rounds}

    def restore(self, counters: Mapping[str, int]) -> None:
        """Continue from `counters()` of an earlier run."""
        self._varying.clear()
        self._fixed = {name: int(counters[name]) for name in self._fixed}
        self.client_rounds, self.receiver_rounds = int(counters["client_rounds"]), int(counters["receiver_rounds"])
        self._receivers = 0

    def metrics(self, dim: int, num_frozen: int = 0) -> dict[str, int | float]:
        """The ledger's part of a metrics line.

        Args:
            dim: D, the trained parameters, which `bpp/...` is of. num_frozen: those of the model that nobody trains.
        Returns:
            `bits/<link>` and `bits/total` (uplink + downlink), cumulative over clients; `bpp/<link>` and `bpp/total`,
            bits per parameter per participating client and round, averaged so far; `bpp/downlink_per_receiver`, the
            downlink per receiving client, which is less than `bpp/downlink` if idle clients receive too; the same
            under `paper/` if the paper's count differs on any link, without the totals if the paper counts only one
            direction; `bpp/whole_model`, `bpp/total` divided over the frozen parameters too, if there are any;
            `gradients`, cumulative over clients, if there are any.
        """
        counters = self.counters()
        line = self._lines(counters, "", dim)
        if any(counters[f"paper/{link}"] != counters[link] for link in LINKS):
            line |= self._lines(counters, "paper/", dim)
        if num_frozen:
            line["bpp/whole_model"] = line["bpp/total"] * dim / (dim + num_frozen)
        return line | ({GRADIENTS: counters[GRADIENTS]} if counters[GRADIENTS] else {})

    def _lines(self, counters: Mapping[str, int], prefix: str, dim: int) -> dict[str, int | float]:
        """`bits/` and `bpp/` under a prefix."""
        bits = {link: counters[prefix + link] for link in LINKS}
        if all(bits[way] or not counters[way] for way in DIRECTIONS):  # no total if a direction is not counted
            bits["total"] = bits["uplink"] + bits["downlink"]
        per = max(dim * self.client_rounds, 1)
        line: dict[str, int | float] = {f"{prefix}bits/{link}": amount for link, amount in bits.items()}
        line |= {f"{prefix}bpp/{link}": amount / per for link, amount in bits.items()}
        line[f"{prefix}bpp/{PER_RECEIVER}"] = bits["downlink"] / max(dim * self.receiver_rounds, 1)
        return line

    def _add(self, name: str, amount: int | Tensor) -> None:
        if isinstance(amount, Tensor):
            self._varying[name] = self._varying[name] + amount if name in self._varying else amount
        else:
            self._fixed[name] += amount
