"""What every server optimiser must pass. Shape legend: D parameters, S steps."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.check.again import key
from fedcomp.check.failed import described, require
from fedcomp.server import ServerOptimizer, Slots
from fedcomp.server.trial import tried

DIM = 7
STEPS = 6
DRIFT = 0.1
"""The mean update, as a share of what the model is away from the optimum."""
ROUNDS = 100


@dataclass(frozen=True)
class ServerCase:
    """A server optimiser. name: shown with the results. make: makes it."""

    name: str
    make: Callable[[], ServerOptimizer]


def check_steps(case: ServerCase) -> None:
    """A step is a finite [D], for one parameter and for many; it keeps what it is given, and the memory's shapes."""
    try:
        tried(case.make())
    except ValueError as refused:
        require(False, str(refused))
    for dim in (1, DIM, 1000):
        theta = _drawn("model", dim)
        for number, (step, slots) in enumerate(_steps(case.make(), theta, _updates(dim))):
            where = f"{dim} parameters, step {number + 1}"
            require(step.shape == theta.shape, f"{where}: is {tuple(step.shape)}")
            _require_finite(where, step, slots)


def check_zeros(case: ServerCase) -> None:
    """An update of zeros gives no NaN."""
    for number, (step, slots) in enumerate(_steps(case.make(), torch.zeros(DIM), torch.zeros(2, DIM))):
        _require_finite(f"a model and updates of zeros, step {number + 1}", step, slots)


def check_resume(case: ServerCase) -> None:
    """Made anew in the middle, with the memory and the model of before, it makes the same steps."""
    whole = [step for step, _ in _steps(case.make(), _drawn("model", DIM), _updates(DIM))]
    theta, half = _drawn("model", DIM), STEPS // 2
    slots = case.make().init(theta)
    for step, after in _steps(case.make(), theta, _updates(DIM)[:half]):
        theta, slots = theta + step, tuple(one.clone() for one in after)
    resumed = _steps(case.make(), theta, _updates(DIM)[half:], slots)
    _require_same(f"resumed after step {half}", half, [step for step, _ in resumed], whole[half:])


def check_alone(case: ServerCase) -> None:
    """Steps do not depend on another model, of a repetition, that the same optimiser has stepped for."""
    alone = [step for step, _ in _steps(case.make(), _drawn("model", DIM), _updates(DIM))]
    both = case.make()
    one = _steps(both, _drawn("model", DIM), _updates(DIM))
    other = _steps(both, _drawn("other model", DIM), 5 * _updates(DIM).flip(0))
    beside = [step for _, (step, _) in zip(other, one)]
    _require_same("beside another model", 0, beside, alone)


def check_learns(case: ServerCase) -> None:
    """A hundred steps along updates that lead to an optimum bring the model nearer to it."""
    optimizer, optimum, theta = case.make(), _drawn("optimum", DIM), torch.zeros(DIM)
    slots, first = optimizer.init(theta), float(optimum.norm())
    for _ in range(ROUNDS):
        step, slots = optimizer.step(DRIFT * (optimum - theta), slots, theta)
        theta = theta + step
    last = float((optimum - theta).norm())
    require(
        last < first,
        f"{ROUNDS} updates of {DRIFT} (optimum - model) bring the distance from {first:.4g} to {last:.4g}; the step is "
        "added to the model, and the update is no gradient but the way to go; if steps are only too long, give another "
        "server.lr",
    )


CHECKS = (check_steps, check_zeros, check_resume, check_alone, check_learns)


def _drawn(what: str, dim: int) -> Tensor:
    return torch.randn(dim, generator=key("server", what).generator())


def _updates(dim: int) -> Tensor:
    """[S, D]"""
    return 0.1 * torch.randn(STEPS, dim, generator=key("server", "updates").generator())


def _steps(
    optimizer: ServerOptimizer, theta: Tensor, updates: Tensor, slots: Slots | None = None
) -> Iterable[tuple[Tensor, Slots]]:
    """Each step and the memory after it, of a model that begins at theta; slots None: the first memory."""
    slots = optimizer.init(theta) if slots is None else slots
    for update in updates:
        step, slots = optimizer.step(update.clone(), slots, theta.clone())
        theta = theta + step
        yield step, slots


def _require_finite(where: str, step: Tensor, slots: Slots) -> None:
    for what, one in [("the step", step), *((f"slots[{place}]", slot) for place, slot in enumerate(slots))]:
        require(one.isfinite().all(), f"{where}: {what} is {one.flatten()[:8].tolist()}")


def _require_same(where: str, before: int, steps: Iterable[Tensor], wanted: Iterable[Tensor]) -> None:
    for number, (step, other) in enumerate(zip(steps, wanted, strict=True)):
        require(torch.equal(step, other), f"{where}: step {before + number + 1} {described(step, other)}")
