"""The scalars of the last rounds, from which a client that was away repeats what it missed.

A client that took part in round t holds the model with which that round began, and the seeds of its directions. When it
comes again, in round r, it is sent the mean scalars of rounds t ... r - 1 and the seeds of t + 1 ... r - 1, and repeats
the server's steps: the same operations on the same numbers, so it ends at the server's model, bit for bit. A newcomer
repeats all rounds from the first model, which follows from the run's seed. The message's length says how many rounds.

So the simulation has one model: what a client arrives at is the server's own. `verify` computes it all the same, and so
does a client that is apart (`Link.client`): it keeps the model with which its last round began.

Shape legend: N clients, D parameters, H rounds that are kept, K steps, P directions a step, W = K P at the most.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context, Metrics
from fedcomp.compressor.seed import seed_number, seed_words
from fedcomp.core.cohort import Cohort, Listed
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Float, Unsigned

Place = tuple[Tensor, Tensor]
"""Where an optimizer is: the model [D] and its velocity, [D] or [0]."""


@dataclass(frozen=True)
class Step:
    """What a round's step is made of.

    Attributes:
        scalars: [K, P] float32 mean scalars. numbers: [K] int64 seeds. lr: the step's length.
    """

    scalars: Tensor
    numbers: Tensor
    lr: float


Walk = Callable[[Place, Step], Place]
"""The server's step of one round."""


@dataclass(frozen=True)
class History:
    """What the last H rounds were made of. Only rounds with clients are numbered; round i lies in row i mod H.

    Attributes:
        scalars: [H, W] float32 mean scalars, zeros behind those of a round. numbers: [H, K] int64 seeds.
        lr: [H] float64 and perturbations: [H] int64, eta and P of each round, on the host.
        made: [1] int64 rounds so far, on the host.
        last: [N, 1] int64 number of the round in which each client last took part, -1 for none, on the host.
        theta, velocity: where the oldest kept round began, to verify replays; of length 0 otherwise.
    """

    scalars: Tensor
    numbers: Tensor
    lr: Tensor
    perturbations: Tensor
    made: Tensor
    last: Tensor
    theta: Tensor
    velocity: Tensor

    @classmethod
    def init(cls, like: Tensor, num_clients: int, rounds: int, steps: int, width: int, start: Place) -> "History":
        """Before the first round, on the device of `like`."""
        host = torch.device("cpu")
        return cls(
            like.new_zeros(rounds, width),
            like.new_zeros(rounds, steps, dtype=torch.int64),
            torch.zeros(rounds, dtype=torch.float64, device=host),
            torch.zeros(rounds, dtype=torch.int64, device=host),
            torch.zeros(1, dtype=torch.int64, device=host),
            torch.full((num_clients, 1), -1, dtype=torch.int64, device=host),
            *start,
        )

    @property
    def rounds(self) -> int:
        """H."""
        return self.scalars.shape[0]

    @property
    def num_made(self) -> int:
        """Rounds so far."""
        return int(self.made[0])

    def record(self, step: Step, cohort: Cohort, walk: Walk) -> "History":
        """With one more round, in which the cohort took part."""
        row, width = self.num_made % self.rounds, step.scalars.numel()
        theta, velocity = self.theta, self.velocity
        if theta.shape[0] and self.num_made >= self.rounds:  # its oldest round is forgotten
            theta, velocity = walk((theta, velocity), self.step(self.num_made - self.rounds))
        scalars, numbers, lr, perturbations, last = (
            tensor.clone() for tensor in (self.scalars, self.numbers, self.lr, self.perturbations, self.last)
        )
        scalars[row].zero_()
        scalars[row, :width] = step.scalars.flatten()
        numbers[row], lr[row], perturbations[row] = step.numbers, step.lr, step.scalars.shape[1]
        last[list(cohort.clients)] = self.num_made
        return History(scalars, numbers, lr, perturbations, self.made + 1, last, theta, velocity)

    def step(self, number: int) -> Step:
        """That of round `number`, one of the last H."""
        row = number % self.rounds
        num = int(self.perturbations[row])
        numbers = self.numbers[row]
        return Step(self.scalars[row, : len(numbers) * num].view(len(numbers), num), numbers, float(self.lr[row]))

    def widths(self, since: int) -> int:
        """Scalars of the rounds from `since` on."""
        rows = torch.arange(since, self.num_made) % self.rounds
        return int(self.perturbations[rows].sum()) * self.numbers.shape[1]

    @property
    def num_bits(self) -> int:
        """Bits of the scalars and seeds of the rounds that are kept."""
        first = max(0, self.num_made - self.rounds)
        return 32 * self.widths(first) + 64 * self.numbers.shape[1] * (self.num_made - first)

    def message(self, since: int, held: int) -> Payload:
        """The rounds from `since` on, to a receiver that has the seeds of the first `held` of them.

        The paper counts as many numbers for the seeds as there are scalars.
        """
        steps = [self.step(number) for number in range(since, self.num_made)]
        fields = {"scalars": Field(torch.cat([step.scalars.flatten() for step in steps])[None], Float())}
        if steps[held:]:
            words = seed_words(torch.cat([step.numbers for step in steps[held:]]))
            fields = {"seed": Field(words.reshape(1, -1), Unsigned(32)), **fields}
        return Payload(fields, paper_bits=2 * 32 * fields["scalars"].data.shape[1])

    def received(self, payload: Payload, since: int) -> list[Step]:
        """The steps in a message of the rounds from `since` on, as its receiver reads them."""
        steps, found, at = [self.step(number) for number in range(since, self.num_made)], [], 0
        numbers = torch.cat([step.numbers for step in steps])
        if "seed" in payload.fields:  # those before are known
            sent = seed_number(payload.fields["seed"].data.reshape(-1, 2))
            numbers = torch.cat((numbers[: len(numbers) - len(sent)], sent))
        for step, own in zip(steps, numbers.split(self.numbers.shape[1]), strict=True):
            part = payload.fields["scalars"].data[0, at : at + step.scalars.numel()]
            found.append(replace(step, scalars=part.view(step.scalars.shape), numbers=own))
            at += step.scalars.numel()
        return found


@dataclass(frozen=True)
class Replay:
    """Brings the cohort to the server's model.

    Attributes:
        seed_cost: sent, or derived. shortest: send the model where that is shorter.
        verify: compute what every client arrives at, and compare.
    """

    seed_cost: str
    shortest: bool
    verify: bool

    def send(self, place: Place, history: History, cohort: Cohort, walk: Walk, ctx: Context) -> tuple[Place, Metrics]:
        """Send each client what it missed, or the model (with the velocity) if that is no longer kept.

        Returns:
            Where the cohort begins, and `replay/rounds` and `replay/max`: rounds that a client repeats, in the mean and
            at most.
        """
        own, memory, arrived = ctx.link.client, ctx.link.memory, place
        if own is not None and not history.num_made:
            memory["model"], memory["velocity"] = place
        made, dense = history.num_made, 32 * sum(part.shape[0] for part in place)
        last = history.last.numpy()[list(cohort.clients), 0].tolist()
        models: list[int] = []
        repeated: list[int] = []
        for number in sorted(set(last)):
            away = [client for client, own in zip(cohort.clients, last) if own == number]
            since = max(number, 0)
            missed, held = made - since, int(number >= 0)
            unknown = (missed - held) * history.numbers.shape[1] if self.seed_cost == "sent" else 0
            if not missed:
                repeated += [0] * len(away)
            elif missed > history.rounds or (self.shortest and 32 * history.widths(since) + 64 * unknown > dense):
                models += away
                repeated += [0] * len(away)
            else:
                message = history.message(since, missed if self.seed_cost == "derived" else held)
                received = ctx.link.broadcast(message, Listed(tuple(away)))
                repeated += [missed] * len(away)
                if own in away:
                    arrived = memory["model"], memory["velocity"]
                    for step in history.received(received, since):
                        arrived = walk(arrived, step)
                elif self.verify and own is None:
                    self._check(place, history, history.received(received, since), since, walk)
        like = place[0]
        if models:
            received_place = ctx.send_dense("model", torch.cat(place), Listed(tuple(models)))
            if own in models:
                arrived = received_place[: len(like)], received_place[len(like) :]
        if own in cohort.clients:
            memory["model"], memory["velocity"] = arrived
        mean = like.new_full((), sum(repeated) / len(repeated))
        return arrived, {"replay/rounds": mean, "replay/max": like.new_full((), max(repeated))}

    def _check(self, place: Place, history: History, missed: list[Step], since: int, walk: Walk) -> None:
        """Assert that a client that holds the model of round `since` arrives at the server's."""
        arrived = history.theta, history.velocity
        for number in range(max(0, history.num_made - history.rounds), since):
            arrived = walk(arrived, history.step(number))
        for step in missed:
            arrived = walk(arrived, step)
        assert all(map(torch.equal, arrived, place)), f"a client that left in round {since} has another model"
