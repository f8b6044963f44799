"""DeComFL: clients send derivatives of their loss along random directions that all share; scalars go both ways.

Z. Li, B. Ying, Z. Liu, C. Dong, H. Yang, "Achieving dimension-free communication in federated learning via zeroth-order
optimization", ICLR 2025 (arXiv:2405.15861); official code `ZidongLiu/DeComFL`. In round r, for k = 1..K on a batch of
its own each, a client of the cohort C (m clients) computes at its y the scalars of P directions z_{r,k,p}, and steps:

    g_{i,k,p} = (f(y + mu z) - f(y - mu z)) / (2 mu);    y <- y - eta (1/P) sum_p g_{i,k,p} z_{r,k,p}

It sends g_i [K, P] and forgets y. Server: x <- x - eta (1/P) sum_k sum_p gbar_{k,p} z_{r,k,p} with the mean gbar of the
cohort's scalars. All move along the same z, so this is the mean of the clients' last y, also with momentum and weight
decay: FedAvg with zeroth-order local SGD. Directions are shared: more clients reduce the noise of data alone, and P and
K that of directions, whose variance is (D + 1) / P times the squared gradient for Gaussian z.

Where paper and code differ: the paper's text has the forward difference, its code the central one by default, which is
ours. Momentum and weight decay are the code's; the velocity is the server's, and clients repeat it with the model. In
the code a changed step size (`stages` here, its `adjust_perturb`) does not survive the restoring of a client's
optimizer, so that clients and server part; here a round is repeated with its own eta and P. Seeds in the code are
numbers up to 10^6, from which directions recur; here they have 64 bits, or cost nothing (`seed_cost: derived`).

What a client must be sent depends on how long it was away (history.py). Summed over a run it is sent each round's
scalars once, up to its last participation: the downlink is about N / m times the uplink, which the paper's figures
leave out. The paper counts two numbers for each scalar of the rounds that are repeated.

Shape legend: M clients of the cohort, A of them in a chunk, N clients in all, D parameters, C running statistics, K
steps, P directions a step, G of them at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup
from fedcomp.algorithm.zeroth_order.history import History, Place, Replay, Step
from fedcomp.algorithm.zeroth_order.stages import Stages
from fedcomp.algorithm.zeroth_order.two_point import RunningStats, TwoPoint, check_stats, directions_at_once, finite
from fedcomp.client import Batch, Batching, LocalData
from fedcomp.compressor.seed import SeedCost, seed_number
from fedcomp.core.cohort import Cohort, Receivers
from fedcomp.core.ranges import Whole, Within
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Float, Unsigned

Trained = tuple[Tensor, Tensor, Tensor, Tensor]
KEPT_VALUES = 1 << 27
"""Numbers of a round's directions, 512 MiB, up to which they are drawn once, for all clients and the server's step."""


@dataclass(frozen=True)
class DeComFLState:
    """What lives from round to round.

    Attributes:
        theta: [D] the server's model x. velocity: [D] of its steps, [0] without momentum.
        stats: [C] running statistics. history: scalars to be repeated.
    """

    theta: Tensor
    velocity: Tensor
    stats: Tensor
    history: History


@dataclass(frozen=True)
class DeComFL(Stages, TwoPoint, Algorithm):
    """Zeroth-order local SGD along shared directions; scalars up, missed scalars down.

    Attributes:
        steps, lr, perturbations: K, eta and P. momentum, weight_decay: as torch's SGD.
        mu, difference, distribution: see `TwoPoint`. schedule, lr_final, stages: see `Stages`.
        running_stats: gather: those of a forward pass at y after every step (of the last one for the central
            difference, which has none), sent as floats both ways.
    """

    exact_losses: ClassVar[bool] = True

    steps: Annotated[int, Whole()] = 1
    momentum: Annotated[float, Within("[0, 1)")] = 0.0
    weight_decay: Annotated[float, Within("[0, inf)")] = 0.0
    batch_size: Annotated[int, Whole()] = 10
    seed_cost: SeedCost = "sent"
    sends: Literal["replay", "shortest", "model", "broadcast_all"] = "replay"
    history: Annotated[int, Whole()] = 1000
    running_stats: RunningStats = "refuse"
    weights: str = "uniform"
    diagnose: bool = False
    verify_replay: bool = False

    when_slow = (
        "steps along random directions learn slowly: more rounds, a larger algorithm.lr or more algorithm.perturbations"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.verify_replay and not self._replays:
            raise ValueError(
                f"algorithm.verify_replay=true needs clients that repeat rounds, not algorithm.sends={self.sends}"
            )

    @property
    def _replays(self) -> bool:
        return self.sends in ("replay", "shortest")

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> DeComFLState:
        """The first model. Raises ValueError: a model with running statistics, which nobody asked to gather."""
        check_stats("decomfl", self.running_stats, stats)
        velocity = torch.zeros_like(theta if self.momentum else theta[:0])
        kept = self.history if self._replays else 0
        start = (theta, velocity) if self.verify_replay else (theta[:0], velocity[:0])
        width = self.steps * self.most_perturbations
        history = History.init(theta, setup.num_clients, kept, self.steps, width, start)
        return DeComFLState(theta, velocity, stats, history)

    def round(self, state: DeComFLState, cohort: Cohort, ctx: Context) -> tuple[DeComFLState, Metrics]:
        """One round.

        Metrics: `message/scalar` [M] largest |g_i|; `evaluations` losses that a client computes (`gradients` counts
        none of them); `replay/rounds`, `replay/max` and `history/bits`, see history.py; with `diagnose`
        `estimate/variance`, ||step - mean||^2 / ||mean||^2 with the step of the true gradients as the mean.
        """
        lr, num = self.size_and_number(ctx.progress)
        place, metrics = (state.theta, state.velocity), {}
        start = place
        if self._replays:
            down = Replay(self.seed_cost, self.sends == "shortest", self.verify_replay)
            start, found = down.send(place, state.history, cohort, self.walk, ctx)
            metrics = dict(found)
            metrics["history/bits"] = state.theta.new_full((), state.history.num_bits)
        elif self.sends == "model":
            received_place = ctx.send_dense("model", torch.cat(place), cohort)
            start = received_place[: len(state.theta)], received_place[len(state.theta) :]
        everybody = self.sends == "broadcast_all"
        numbers = self._numbers(ctx.everyone if everybody else cohort, state.theta, ctx)
        stats = ctx.send_stats(state.stats, cohort)

        directions = SharedDirections(self, numbers, num, state.theta.shape[0])
        scalars, loss, new_stats, true = self._train(start, stats, directions, lr, cohort, ctx)
        payload = Payload({"scalars": Field(scalars, Float())})
        (received,) = ctx.link.up(payload).expect(scalars=self.steps * num)
        stats = ctx.gather_stats(new_stats, cohort)
        mean = (cohort.weight.double() @ finite(received).double()).to(torch.float32)
        if everybody:
            message = Payload({"scalars": Field(mean[None], Float())})
            mean = ctx.link.broadcast(message, ctx.everyone).fields["scalars"].data[0]

        step = Step(mean.view(self.steps, num), numbers, lr)
        theta, velocity = self._walk(place, step, directions)
        history = state.history.record(step, cohort, self.walk) if self._replays else state.history
        metrics |= {"train/loss": loss, "message/scalar": received.abs().amax(1)}
        evaluations = self.steps * self.evaluations(num) + self.last_forward(stats)
        metrics["evaluations"] = state.theta.new_full((), evaluations)
        if self.diagnose:
            wanted = cohort.weight @ true
            error = (theta - state.theta - wanted).square().sum(dtype=torch.float64)
            metrics["estimate/variance"] = error / wanted.square().sum(dtype=torch.float64).clamp(min=1e-300)
        return DeComFLState(theta, velocity, stats, history), metrics

    def walk(self, place: Place, step: Step) -> Place:
        """The server's step of one round, the same operations on the same numbers whoever makes it."""
        directions = SharedDirections(self, step.numbers, step.scalars.shape[1], len(place[0]), keep=False)
        return self._walk(place, step, directions)

    def _walk(self, place: Place, step: Step, directions: "SharedDirections") -> Place:
        theta, velocity = place[0].clone(), place[1].clone()
        for k, scalars in enumerate(step.scalars):
            total = torch.zeros_like(theta)
            for part, z in directions.groups(k, 1):
                total.addcmul_(z[0], scalars[part])
            self._move(theta, velocity, total.div_(step.scalars.shape[1]), step.lr)
        return theta, velocity

    def _move(self, y: Tensor, velocity: Tensor, direction: Tensor, lr: float) -> None:
        """A step of torch's SGD in place: y and direction [..., D], velocity [..., D] or [..., 0]."""
        if self.weight_decay:
            direction = direction.add(y, alpha=self.weight_decay)
        if self.momentum:
            direction = velocity.mul_(self.momentum).add_(direction)
        y.sub_(direction, alpha=lr)

    def _numbers(self, receivers: Receivers, like: Tensor, ctx: Context) -> Tensor:
        """[K] int64: the seeds of this round's steps, which the receivers are sent if they cannot derive them."""
        rows = torch.arange(self.steps, device=like.device)
        if self.seed_cost == "derived":
            return seed_number(ctx.common("direction", ctx.server(like)).key.fold_in("seed").bits(rows, 2))
        words = ctx.sender_key("direction").fold_in("seed").bits(rows, 2)
        payload = Payload({"seed": Field(words.reshape(1, -1), Unsigned(32))}, paper_bits=0)
        (received,) = ctx.link.broadcast(payload, receivers).expect(seed=2 * self.steps)
        return seed_number(received.reshape(-1, 2))

    def _train(
        self, start: Place, stats: Tensor, directions: "SharedDirections", lr: float, cohort: Cohort, ctx: Context
    ) -> Trained:
        """Scalars [M, K P], losses of the first step [M], statistics [M, C], true steps [M, D] or [M, 0]."""

        def train(data: LocalData, y: Tensor, velocity: Tensor, stats: Tensor) -> Trained:
            start, y, velocity = y, y.clone(), velocity.clone()
            true, speed = (y.clone(), velocity.clone()) if self.diagnose else (y[:, :0], y[:, :0])
            found, losses = [], []
            for k, (x, targets, weight) in enumerate(data.batches(Batching(self.batch_size, steps=self.steps))):
                batch, centre = Batch(x, targets, weight, stats), None
                if self.at_centre:
                    centre, after = data.losses(y[:, None], batch, k)
                    centre, stats = centre[:, 0], after[:, 0]
                if self.diagnose:
                    self._move(true, speed, data.gradient(true, batch, k).grad, lr)
                total = torch.zeros_like(y)
                for _, z in directions.groups(k, directions_at_once(y)):
                    scalars, loss = self.scalars(data, y, z[None], batch, k, centre)
                    total += scalars.to(y.dtype) @ z.to(y.dtype)
                    found.append(scalars)
                    losses += [loss] if not k else []
                self._move(y, velocity, total / directions.num, lr)
                if k == self.steps - 1 and self.last_forward(stats[0]):
                    stats = data.losses(y[:, None], batch, k)[1][:, 0]
            loss = torch.stack(losses).mean(0).to(torch.float32)
            return torch.cat(found, 1), loss, stats, true - start if self.diagnose else true

        places = (part.expand(cohort.size, -1) for part in (*start, stats))
        return ctx.clients.map_clients(train, cohort, *places)


class SharedDirections:
    """The directions of one round, step by step: P of each of K seeds, which clients and server share. `num`: P."""

    def __init__(self, two_point: TwoPoint, numbers: Tensor, num: int, dim: int, keep: bool = True) -> None:
        """numbers: [K] int64 seeds. num: P. dim: D. keep: whether they are read more than once."""
        self.num, self._two_point, self._numbers, self._dim = num, two_point, numbers, dim
        keeps = keep and len(numbers) * num * dim <= KEPT_VALUES
        self._kept = [self._draw(k, 0, num) for k in range(len(numbers))] if keeps else []

    def groups(self, step: int, at_once: int) -> Iterator[tuple[slice, Tensor]]:
        """(which of step `step`'s directions, these [G, D]), at most `at_once` at a time."""
        for first in range(0, self.num, at_once):
            part = slice(first, min(first + at_once, self.num))
            yield part, self._kept[step][part] if self._kept else self._draw(step, first, part.stop - first)

    def _draw(self, step: int, first: int, num: int) -> Tensor:
        return self._two_point.directions(self._numbers[step : step + 1], num, first, self._dim)[0]
