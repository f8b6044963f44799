"""What every local solver must pass, beside what an algorithm must with it (`fedcomp.check.algorithm`).

Shape legend: M clients, A of them still at work, D parameters.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.check import algorithm, trajectory, world
from fedcomp.check.again import key
from fedcomp.check.failed import described, require
from fedcomp.client import Batch, GradFn, Gradient, Hook, LocalData, LocalSolver, Reads
from fedcomp.client.solver import Position
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.random.keys import Key
from fedcomp.server.sgd import Sgd as ServerSgd
from fedcomp.wire import Ledger
from fedcomp.wire.ledger import GRADIENTS

ROUNDING = 1e-9
"""Relative difference of float64 that were computed in another order."""


@dataclass(frozen=True)
class ClientCase:
    """A local solver. name: shown with the results. module: the network that it trains."""

    name: str
    solver: LocalSolver
    module: Any = world.mlp

    def within(self, **options: Any) -> algorithm.AlgorithmCase:
        """FedAvg with this solver, without compression."""
        dense = Compressor(Dense())
        method = FedAvg(self.solver, ServerSgd(), dense, dense, **options)
        return algorithm.AlgorithmCase(self.name, method, module=self.module)

    def work(self, function: Callable[[LocalData, Tensor, Tensor], Any]) -> tuple[Any, int]:
        """What the function makes of all clients, who start at the first model; and how many gradients are counted."""
        simulation, ledger = self.within().simulation(participation=world.FULL), Ledger()
        theta, stats = simulation.model.init(simulation.key.fold_in("model"))
        clients = simulation.clients(simulation.round_key(0).fold_in("client"), ledger)
        rows = (one.expand(world.NUM_CLIENTS, -1).clone() for one in (theta, stats))
        made = clients.map_clients(function, simulation.cohort(0), *rows)
        return made, ledger.counters()[GRADIENTS]

    def trained(
        self, solver: LocalSolver, hook: GradFn | None = None, round_index: int = 0
    ) -> tuple[Tensor, Tensor, int]:
        """[M, D] where the clients end in a round of two and where they began; and how many gradients are counted."""

        def train(data: LocalData, theta: Tensor, stats: Tensor) -> tuple[Tensor, Tensor]:
            return solver.run(data, theta, stats, (round_index, 2), hook).value, theta

        (end, start), gradients = self.work(train)
        return end, start, gradients


def check_steps(case: ClientCase) -> None:
    """`gradients` gives every client as many steps as `batching` says, each [A, D] of the first A clients."""

    def counted(data: LocalData, theta: Tensor, stats: Tensor) -> Tensor:
        solver, made = case.solver.on(data), torch.zeros(len(theta), dtype=torch.int64)
        for one in solver.gradients(data, Position(theta.clone(), stats.clone()), data.gradient):
            shape = tuple(one.grad.shape)
            require(shape[1:] == theta.shape[1:], f"a gradient is {shape} of {theta.shape[1]} parameters")
            made[: shape[0]] += 1
        return torch.stack((made, data.num_steps(solver.batching)), 1)

    for client, (made, said) in enumerate(case.work(counted)[0].tolist()):
        require(made == said, f"client {client} of {world.SIZES[client]} samples: {made} steps instead of {said}")


def check_rate(case: ClientCase) -> None:
    """Steps have the length of the round's learning rate, `coefficients`, which client.schedule changes."""
    halved = replace(case.solver, schedule="exponential", lr_final=0.5)
    (later, *_), (first, *_) = case.trained(halved, round_index=1), case.trained(halved)
    require(
        not torch.equal(later, first),
        "with client.schedule=exponential the second round's steps are those of the first",
    )


def check_proximal(case: ClientCase) -> None:
    """client.proximal pulls every step but the first to where the client began."""
    steps, _ = case.work(lambda data, theta, stats: data.num_steps(case.solver.batching))
    if int(steps.max()) > 1:
        with contextlib.suppress(ValueError):  # it may refuse
            pulled, free = (
                case.trained(replace(case.solver, proximal=pull))[0] for pull in (0.5 / case.solver.lr, 0.0)
            )
            require(
                not torch.equal(pulled, free),
                "client.proximal changes nothing: a `hook` of your own ends with super().hook(data, start, own)",
            )


def check_hook(case: ClientCase) -> None:
    """Every gradient is asked of the hook, by which an algorithm corrects it, or the solver refuses hooks."""

    def gradient(theta: Tensor, batch: Batch, reads: Reads | int) -> Gradient:
        return Gradient(torch.ones_like(theta), torch.zeros_like(theta[:, 0]), batch.stats)

    for what, hook in (("Hook", Hook(gradient, "ones", (), (), Key())), ("function", gradient)):
        with contextlib.suppress(ValueError):
            end, start, gradients = case.trained(case.solver, hook)
            require(
                not gradients,
                f"with an algorithm's {what} that gives ones, {gradients} gradients are of the samples: `gradients` "
                "asks grad_fn for each, and `hook` adds to the grad_fn that it is given, or raises a ValueError",
            )
            require(
                (end != start).any(1).all(), f"with an algorithm's {what} that gives ones, clients stay where they are"
            )


def check_memories(case: ClientCase) -> None:
    """The memories that `init` makes are [M, D] of the type of the parameters, as theta.new_zeros makes them."""

    def made(data: LocalData, theta: Tensor, stats: Tensor) -> Tensor:
        theta = theta.double()
        for place, one in enumerate(case.solver.on(data).init(theta)):
            like = one.dtype == theta.dtype and one.shape == theta.shape
            require(
                like, f"memory {place} {described(one, theta)}: theta.new_zeros(theta.shape) makes it, also on a GPU"
            )
        return theta

    case.work(made)


def check_coefficients(case: ClientCase) -> None:
    """`update` makes the same step by floats as by tensors of no axes or, where it persists, [A, 1]."""
    forms = {"floats": lambda one, rows: one}
    if type(case.solver).gradients is LocalSolver.gradients:  # a CUDA graph has the steps of no others
        forms["tensors of no axes"] = lambda one, rows: torch.tensor(one, dtype=torch.float64)
    if _persists(case.solver):
        forms["tensors [A, 1]"] = lambda one, rows: torch.full((rows, 1), one, dtype=torch.float64)

    def stepped(data: LocalData, theta: Tensor, stats: Tensor) -> Tensor:
        solver, found = case.solver.on(data), {}
        for name, form in forms.items():
            at, slots = theta.double(), solver.init(theta.double())
            for number in range(3):
                given = solver.step_coefficients(number, solver.lr)
                solver.update(at, _drawn(theta, number), slots, tuple(form(float(one), len(at)) for one in given))
            found[name] = at
        for name, at in found.items():
            near = torch.allclose(at, found["floats"], rtol=ROUNDING, atol=ROUNDING)
            require(near, f"three steps by {name}: theta {described(at, found['floats'])} by floats")
        if len(forms) > 1:
            steps = torch.arange(3, dtype=torch.float64)
            by_tensor = solver.stacked_coefficients(steps, solver.lr)
            wanted = torch.tensor([solver.step_coefficients(one, solver.lr) for one in range(3)], dtype=torch.float64).T
            near = torch.allclose(by_tensor, wanted, rtol=ROUNDING, atol=0)
            require(near, f"step_coefficients of the steps [0, 1, 2] as a tensor {described(by_tensor, wanted)} each")
        return theta

    case.work(stepped)


def check_plain_sgd(case: ClientCase) -> None:
    """Where `plain_sgd_decay` is w, steps are theta - lr (gradient + w theta) and no others, as in compiled loops."""
    decay = case.solver.plain_sgd_decay
    if decay is None:
        return

    def stepped(data: LocalData, theta: Tensor, stats: Tensor) -> Tensor:
        solver, at = case.solver.on(data), theta.double()
        slots, wanted = solver.init(at), at.clone()
        for number in range(3):
            grad = _drawn(theta, number)
            wanted = wanted - solver.lr * (grad + decay * wanted)
            solver.update(at, grad.clone(), slots, solver.step_coefficients(number, solver.lr))
        near = torch.allclose(at, wanted, rtol=ROUNDING, atol=ROUNDING)
        require(near, f"plain_sgd_decay is {decay}, but theta {described(at, wanted)} after three steps")
        return theta

    case.work(stepped)


def check_persistent(case: ClientCase) -> None:
    """What it remembers from round to round is resumed, stays with its client, and does not depend on chunks."""
    if _persists(case.solver):
        lasting = case.within(persist_optimizer=True)
        for check in (trajectory.check_resume, trajectory.check_idle_rows, algorithm.check_chunks):
            check(lasting)


def check_learns(case: ClientCase) -> None:
    """Ten rounds of FedAvg with it lower the test loss."""
    algorithm.check_learns(case.within())


CHECKS = (
    check_steps,
    check_rate,
    check_proximal,
    check_hook,
    check_memories,
    check_coefficients,
    check_plain_sgd,
    check_persistent,
    check_learns,
)


def _persists(solver: LocalSolver) -> bool:
    try:
        solver.check_persistent()
    except ValueError:
        return False
    return True


def _drawn(like: Tensor, number: int) -> Tensor:
    """[M, D] float64, another for each number."""
    return torch.randn(like.shape, generator=key("gradient", number).generator(), dtype=torch.float64)
