"""A loss of one's own: with the task's loss it makes the task's steps, whatever the solver and the network."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from fedcomp.client import Batch, GradFn, Hook, LocalData, Reads
from fedcomp.client.own_loss import own_loss
from fedcomp.model.loss import client_mean, cross_entropy, mean_loss
from fedcomp.wire import Ledger
from tests.conformance import world
from tests.looped import looped
from tests.parts import DENSE, Adam, FedAvg, ServerSgd, Sgd, Svrg
from tests.simulation.user_module import Dropping


def _task(outputs: Tensor, batch: Batch, reads: Reads) -> Tensor:
    return mean_loss(cross_entropy, outputs, batch.y, batch.weight)


def _distilled(outputs: Tensor, batch: Batch, reads: Reads) -> Tensor:
    """The task's loss plus twice that of the same labels: three times as much."""
    again = nn.functional.one_hot(batch.y, outputs.shape[2]) * reads.rows[0][: batch.num_rows, None]
    return _task(outputs, batch, reads) - client_mean((again * outputs.log_softmax(2)).sum(2), batch.weight)


def _with(solver, loss, rows: int = 0):
    """The solver, whose steps go along the gradient of `loss`, which reads `rows` rows of 2 for each client."""

    @dataclass(frozen=True, kw_only=True)
    class Own(type(solver)):
        def hook(self, data: LocalData, start: Tensor, grad_fn: GradFn | None) -> Hook:
            return own_loss(data, loss, loss.__name__, (torch.full((len(start), 1), 2.0),) * rows)

    return Own(**vars(solver))


def _run(solver, make) -> tuple[Tensor, Tensor, Ledger]:
    sim = world.in_float64(world.simulation(FedAvg(solver, ServerSgd(), DENSE, DENSE), make, chunk_size=3))
    ledger = Ledger()
    state = world.run(sim, ledger=ledger)
    return state.theta, state.stats, ledger


SOLVERS = {
    "sgd": Sgd(lr=0.1, batch_size=4, epochs=2),
    "adam": Adam(lr=0.02, batch_size=3),
    "svrg": Svrg(lr=0.05, batch_size=4, snapshots=2, inner_steps=2, snapshot_batch_size=8),
}


@looped("make", [world.mlp, world.with_batch_norm, Dropping])
@looped("name", SOLVERS)
def test_the_tasks_loss_makes_the_tasks_steps(name: str, make) -> None:
    plain, own = (_run(solver, make) for solver in (SOLVERS[name], _with(SOLVERS[name], _task)))
    torch.testing.assert_close(own[0], plain[0], rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(own[1], plain[1], rtol=1e-6, atol=1e-7)
    assert own[2].counters() == plain[2].counters(), "each step counts as one gradient a sample"


def test_a_loss_reads_rows_of_its_clients() -> None:
    thrice = replace(SOLVERS["sgd"], lr=0.3)
    torch.testing.assert_close(
        _run(_with(SOLVERS["sgd"], _distilled, rows=1), world.mlp)[0], _run(thrice, world.mlp)[0], rtol=1e-6, atol=1e-7
    )


def _every_sample(outputs: Tensor, batch: Batch, reads: Reads) -> Tensor:
    return cross_entropy(outputs, batch.y)


def test_a_loss_that_is_not_one_number_a_client_is_refused() -> None:
    with pytest.raises(ValueError, match=r"_every_sample has shape \(3, 4\), but must be one number for each of the 3"):
        _run(_with(SOLVERS["sgd"], _every_sample), world.mlp)
