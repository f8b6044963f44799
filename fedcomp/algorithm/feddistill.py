"""FedDistill (federated distillation, FD): clients keep their models, and send what these say of each class.

E. Jeong, S. Oh, H. Kim, J. Park, M. Bennis, S.-L. Kim, "Communication-efficient on-device machine learning: federated
distillation and augmentation under non-IID private data", arXiv:1811.11479, algorithm 1, as recalled. With p_i(x) the
probabilities that client i's model gives sample x, and L classes:

    down    of each class l: how many clients sent it, n_l, and the sum of their t_il                 (to the cohort)
    local   steps along the gradient of  CE(p_i(x), y) + gamma CE(p_i(x), T_iy),
            T_il = (sum_j t_jl - t_il) / (n_l - 1), the mean of the others; without others there is no second term
    up      of each of its own classes: t_il, the mean of p_i(x) over its samples x of class l

A message has 32 L bits a class, however large the model is. There is no model that all share: what is tested is the
mean over all N clients.

Differs from the paper, where all clients take part: the server keeps the t_il of those who are idle; it sends sums, not
each client's own mean, so that all receive the same message; classes that nobody has sent are left out. And t_il is
that of the model after local training, not a mean over its steps.

Shape legend: M clients of the cohort, N in all, A at work, D parameters, C running statistics, L classes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup
from fedcomp.algorithm.models import Models
from fedcomp.client import Batch, LocalData, LocalResult, LocalSolver, Reads
from fedcomp.client.own_loss import own_loss
from fedcomp.compressor.sparsifiers.sparse_indices import compact, expand
from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import put_rows, take_rows
from fedcomp.core.ranges import Within
from fedcomp.model.loss import client_mean
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Float, Unsigned, bits_for


@dataclass(frozen=True)
class FedDistillState:
    """What lives from round to round.

    Attributes:
        theta: [N, D] and stats: [N, C] the clients' models.
        sent: [N, L, L] t_il as each client sent them last, 0 of classes that it does not have; has: [N, L] 1 where it
            does. The server has them all, a client its own.
    """

    theta: Tensor
    stats: Tensor
    sent: Tensor
    has: Tensor


@dataclass(frozen=True)
class FedDistill(Algorithm):
    """Federated distillation.

    Attributes:
        client: the local solver. gamma: weight of the others' probabilities beside the labels.
    """

    client: LocalSolver
    gamma: Annotated[float, Within("[0, inf)", "a weight")] = 1.0

    weights = "uniform"
    normalises_weights = True
    client_models = MappingProxyType({"test": ("theta", "stats")})

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> FedDistillState:
        """The first model at every client. Raises ValueError: samples have no classes."""
        if setup.task != "classification":
            raise ValueError(
                f"algorithm=feddistill sends a message for each class of samples, and the task is {setup.task}: take "
                "a dataset of classes, or algorithm=fedavg"
            )
        num, classes = setup.num_clients, setup.num_outputs
        sent, has = theta.new_zeros(num, classes, classes), theta.new_zeros(num, classes, dtype=torch.int64)
        return FedDistillState(theta.repeat(num, 1), stats.repeat(num, 1), sent, has)

    def round(self, state: FedDistillState, cohort: Cohort, ctx: Context) -> tuple[FedDistillState, Metrics]:
        """One round. Metrics: `train/loss` [M], with the second term; `classes/taught` [M], those that have a T_il."""
        total, number = self._send_down(state, cohort, ctx)
        others = number - take_rows(state.has, cohort)
        teacher = (total - take_rows(state.sent, cohort)) / others.clamp(min=1)[:, :, None]
        taught = (others > 0).to(teacher.dtype)

        models = take_rows(state.theta, cohort), take_rows(state.stats, cohort)
        local, sums, counts = ctx.clients.map_clients(self._train(ctx), cohort, *models, teacher, taught)

        has = (counts > 0).long()
        sent, has = self._send_up(sums / counts.clamp(min=1)[:, :, None], has, ctx)
        new = FedDistillState(
            put_rows(state.theta, cohort, local.value),
            put_rows(state.stats, cohort, local.stats),
            put_rows(state.sent, cohort, sent),
            put_rows(state.has, cohort, has),
        )
        return new, {"train/loss": local.loss, "classes/taught": taught.sum(1)}

    def _train(self, ctx: Context) -> Callable[..., tuple[LocalResult, Tensor, Tensor]]:
        """The work of a chunk: its result, [A, L, L] sums of probabilities by class, and [A, L] samples of each."""

        def work(data: LocalData, theta: Tensor, stats: Tensor, *rows: Tensor) -> tuple[LocalResult, Tensor, Tensor]:
            def loss(outputs: Tensor, batch: Batch, reads: Reads) -> Tensor:
                teacher, taught = (row[: batch.num_rows] for row in reads.rows)
                of_class = functional.one_hot(batch.y, outputs.shape[2]).to(outputs.dtype)
                target = of_class @ (taught[:, :, None] * teacher).to(outputs.dtype)
                pull = client_mean(-(target * outputs.log_softmax(2)).sum(2), batch.weight)
                return data.loss(outputs, batch) + self.gamma * pull

            hook = own_loss(data, loss, ("distillation", self.gamma), rows)
            result = self.client.run(data, theta, stats, ctx.progress, hook)
            return result, *_by_class(data, result, self.client.most_samples, rows[0].shape[1])

        return work

    def _send_down(self, state: FedDistillState, cohort: Cohort, ctx: Context) -> tuple[Tensor, Tensor]:
        """The sums over all clients, of t_il [L, L] and n_l [L], as the cohort receives them."""
        most, number = ctx.clients.num_clients + 1, state.has.sum(0, keepdim=True)
        sent = {"number": Field(number, Unsigned(bits_for(most), most))}
        sent["sums"] = _of_classes(state.sent.sum(0, keepdim=True), number > 0, "number")
        received = ctx.link.broadcast(Payload(sent), cohort).fields
        number = received["number"].data
        return _all_classes(received["sums"].data, number > 0)[0], number[0].long()

    def _send_up(self, means: Tensor, has: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        """The cohort's t_il [M, L, L] of the classes that it has [M, L]; both as received."""
        sent = {"classes": Field(has.to(torch.uint8), Unsigned(1)), "means": _of_classes(means, has > 0, "classes")}
        received = ctx.link.up(Payload(sent)).fields
        has = received["classes"].data
        return _all_classes(received["means"].data, has > 0), has.long()

    def evaluation_models(self, state: FedDistillState, key: Key) -> dict[str, Models]:
        """The models of all N clients, which no server has."""
        return {"test": Models(state.theta, state.stats)}


def _by_class(data: LocalData, trained: LocalResult, batch_size: int, classes: int) -> tuple[Tensor, Tensor]:
    """[A, L, L] sums over each client's samples of its model's probabilities, by class, and [A, L] int64 samples."""
    sums = trained.value.new_zeros(len(trained.value), classes, classes)
    counts = trained.value.new_zeros(len(trained.value), classes)
    for x, y, weight in data.samples(batch_size):
        rows = len(x)
        outputs, _ = data.outputs(trained.value[:rows], Batch(x, y, weight, trained.stats[:rows]))
        of_class = functional.one_hot(y, classes).to(sums.dtype)
        if weight is not None:
            of_class = of_class * weight[:, :, None]
        sums[:rows] += of_class.mT @ outputs.softmax(2).to(sums.dtype)
        counts[:rows] += of_class.sum(1)
    return sums, counts.long()


def _of_classes(values: Tensor, has: Tensor, told_by: str) -> Field:
    """The rows of values [M, L, L] of the classes that a sender has [M, L], which the field `told_by` tells before."""
    classes = has.shape[1]
    sent = compact(values.flatten(1), has.repeat_interleave(classes, 1))

    def count_from(row: Mapping[str, Tensor]) -> int:
        return int((row[told_by] > 0).sum()) * classes

    return Field(sent, Float(), has.sum(1) * classes, count_known=True, count_from=count_from)


def _all_classes(sent: Tensor, has: Tensor) -> Tensor:
    """The inverse of `_of_classes`: [M, L, L], 0 for classes that a sender does not have."""
    classes = has.shape[1]
    return expand(sent, has.repeat_interleave(classes, 1)).unflatten(1, (classes, classes))
