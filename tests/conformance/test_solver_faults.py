"""A planted fault in each property makes the checks of local solvers fail; ours pass."""

import pytest
import torch

from fedcomp.check import ClientCase, check_client
from fedcomp.check import client as solvers
from fedcomp.client.minibatch import MinibatchSolver
from tests.conformance.parts import assert_found, makes, passes
from tests.looped import looped
from tests.parts import GD, Sgd
from tests.thorough import thorough

CLASSES = ("adam", "gd", "muon", "sgd", "svrg")
SOLVERS = makes("client")


class TooFew(GD):
    """Makes a step less than it says."""

    def gradients(self, data, at, grad_fn):
        return list(super().gradients(data, at, grad_fn))[1:]


class OwnRate(Sgd):
    """Its steps have the first round's learning rate."""

    def update(self, theta, grad, slots, coefficients):
        theta.sub_(self.lr * grad)


class Unhooked(Sgd):
    """Leaves out what an algorithm adds to the gradient, and the proximal term."""

    def hook(self, data, start, grad_fn):
        return None


class Asks(MinibatchSolver):
    """Takes gradients of its own beside those that it is given."""

    def gradients(self, data, at, grad_fn):
        return super().gradients(data, at, data.gradient)


class Still(MinibatchSolver):
    """Goes along nothing but gradients of its samples."""

    def update(self, theta, grad, slots, coefficients):
        theta.add_((grad - 1) * coefficients[0])


class Shared(Sgd):
    """One memory for all."""

    def init(self, theta):
        return (torch.zeros(theta.shape[1]),)


class OneForm(MinibatchSolver):
    """Makes longer steps where its coefficients are tensors, as in a CUDA graph."""

    def update(self, theta, grad, slots, coefficients):
        theta.add_(grad * coefficients[0] * (2 if isinstance(coefficients[0], torch.Tensor) else 1))


class Fades(MinibatchSolver):
    """Its learning rate is another one for steps as a tensor."""

    def step_coefficients(self, steps, lr):
        return (-lr / (steps + 1 if isinstance(steps, int) else 1.0 + 0 * steps),)


class Signs(MinibatchSolver):
    """Says that it is plain SGD, and is not."""

    plain_sgd_decay = 0.0

    def update(self, theta, grad, slots, coefficients):
        theta.add_(grad.sign() * coefficients[0])


class Mixes(Sgd):
    """What a client remembers is mixed with what those have that are trained beside it."""

    def init(self, theta):
        return (theta.new_zeros(theta.shape),)

    def update(self, theta, grad, slots, coefficients):
        slots[0].mul_(0.5).add_(grad.mean(0))
        theta.add_(slots[0] * coefficients[0])


class Uphill(Sgd):
    """Goes along the gradient."""

    def update(self, theta, grad, slots, coefficients):
        theta.sub_(coefficients[0] * grad)


@looped(
    "check, solver, words",
    [
        (solvers.check_steps, TooFew(lr=0.1, steps=3), "client 0 of 7 samples: 2 steps instead of 3"),
        (solvers.check_rate, OwnRate(lr=0.1), "with client.schedule=exponential the second round's steps are"),
        (solvers.check_proximal, Unhooked(lr=0.1, batch_size=4), "client.proximal changes nothing: a `hook`"),
        (solvers.check_hook, Unhooked(lr=0.1), r"with an algorithm's Hook that gives ones, \d+ gradients are of the"),
        (solvers.check_hook, Asks(lr=0.1), r"with an algorithm's Hook that gives ones, \d+ gradients are of the"),
        (solvers.check_hook, Still(lr=0.1), "with an algorithm's Hook that gives ones, clients stay where they are"),
        (
            solvers.check_memories,
            Shared(lr=0.1),
            r"memory 0 is torch.float32 \(39,\) instead of torch.float64 \(7, 39\)",
        ),
        (solvers.check_coefficients, OneForm(lr=0.1), r"three steps by tensors of no axes: theta \[0, 0\] is"),
        (solvers.check_coefficients, Fades(lr=0.1), r"step_coefficients of the steps \[0, 1, 2\] as a tensor \[0, 1\]"),
        (solvers.check_plain_sgd, Signs(lr=0.1), r"plain_sgd_decay is 0.0, but theta \[0, 0\] is"),
        (solvers.check_persistent, Mixes(lr=0.1, batch_size=4), "clients 1 at a time: state.theta"),
        (solvers.check_learns, Uphill(lr=0.1, batch_size=4), "ten rounds bring test/loss from"),
        (lambda case: check_client(case), Mixes(lr=0.1, batch_size=4), "clients 1 at a time: state.theta"),
    ],
)
def test_a_fault_of_a_solver_is_found(check, solver, words: str) -> None:
    assert_found(check, ClientCase("faulty", solver), words)


@pytest.mark.parametrize("name", [*CLASSES, *thorough(sorted(SOLVERS.keys() - set(CLASSES)))])
def test_own_solvers_pass(name: str) -> None:
    passes(ClientCase(name, SOLVERS[name]()), solvers)
