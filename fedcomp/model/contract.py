"""The contract of a model: flat rows of parameters in, losses and gradients out, for many clients at once.

Shape legend: M clients (rows), A of them still at work, D parameters, C running statistics (BatchNorm), B batch, O
outputs, T the shape of one sample's targets.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from fedcomp.core.parameter_layout import ParameterTensor
from fedcomp.core.step_counts import StepCounts
from fedcomp.random.keys import Key

NETWORK = "network"
"""The kind of a `Model`; a `TaskModel` has another."""


@dataclass(frozen=True)
class Batch:
    """One step's samples of the clients that still have a step to make.

    Clients of a chunk are sorted by falling number of steps, so those at work are always its first rows: what a method
    keeps for each client is cut to `[: batch.num_rows]`.

    Attributes:
        x: [A, B, ...] inputs; y: [A, B, *T] classes or [A, B, O] targets.
        weight: [A, B] of 0 and 1, where 0 marks a place without a sample: it changes neither loss, gradient nor
            BatchNorm statistics; None: every place holds one.
        stats: [A, C] running statistics that enter the step.
    """

    x: Tensor
    y: Tensor
    weight: Tensor | None
    stats: Tensor

    @property
    def num_rows(self) -> int:
        """A."""
        return self.x.shape[0]

    def __getitem__(self, clients: slice) -> Batch:
        """That of these rows."""
        weight = None if self.weight is None else self.weight[clients]
        return Batch(self.x[clients], self.y[clients], weight, self.stats[clients])


@dataclass(frozen=True)
class Gradient:
    """Gradients of one step, with the losses and statistics of the same forward pass.

    Attributes:
        grad: [M, D] gradient of each row's mean batch loss.
        loss: [M] that loss.
        stats: [M, C] running statistics after the forward pass.
    """

    grad: Tensor
    loss: Tensor
    stats: Tensor


@dataclass(frozen=True)
class StepDraws:
    """What a network draws from in one step of its clients, such as the masks of dropout.

    Attributes:
        key: names the draws of the step. ids: [M] int64 numbers of the clients.
    """

    key: Key
    ids: Tensor

    def uniform(self, call: int, num: int) -> Tensor:
        """[M, n] float32 uniform on [0, 1): draw number `call` of each client's forward pass."""
        return self.key.fold_in(call).uniform(self.ids, num)

    def of_client(self, row: int) -> StepDraws:
        """The draws of the client in this row alone."""
        return StepDraws(self.key, self.ids[row : row + 1])


class Model(Protocol):
    """A network whose parameters are rows.

    Attributes:
        dim: D, trained parameters, laid out in the order of `module.parameters()`.
        num_stats: C, float buffers (BatchNorm running means and variances), in the order of `module.buffers()`.
        layers: size of each parameter tensor in that order; sums to D.
        tensors: what each of them is.
        frozen: its frozen tensors by name, which all clients share.
        module: the ordinary torch module of one client, which computes the same.
        draws_in_training: whether gradients need `draws`, as those of a network with dropout.
    """

    @property
    def drops_empty_places(self) -> bool:
        """Whether empty places are removed before a call: the host must find them, so no CUDA graph can record it."""

    dim: int
    num_stats: int
    layers: tuple[int, ...]
    tensors: tuple[ParameterTensor, ...]
    frozen: Mapping[str, Tensor]
    module: nn.Module
    draws_in_training: bool

    def init(self, key: Key) -> tuple[Tensor, Tensor]:
        """First parameters [D] and statistics [C], drawn from `key`."""

    def gradient(self, theta: Tensor, batch: Batch, draws: StepDraws | None = None) -> Gradient:
        """Gradient of the mean loss of each client, theta [A, D], over its own batch, in training mode.

        Args:
            draws: what dropout draws from, where the model `draws_in_training`.
        """

    def batch_loss(self, theta: Tensor, batch: Batch, draws: StepDraws | None = None) -> tuple[Tensor, Tensor]:
        """([A] float64 loss, [A, C] statistics) of `gradient` with the same arguments, by the forward pass alone.

        The network computes in the dtype of `theta`; the loss of its outputs is taken in float64.
        """

    def outputs(self, theta: Tensor, stats: Tensor, x: Tensor) -> Tensor:
        """[B, O] outputs of one model (theta [D], stats [C]) on x [B, ...], in evaluation mode."""

    def outputs_at_once(self, theta: Tensor) -> int | None:
        """Of how many samples `outputs` is best asked for, where it computes each by itself; None: of any number."""
        ...


@runtime_checkable
class RowModel(Protocol):
    """A network that evaluates many models on the same inputs at once."""

    def outputs_of_rows(self, theta: Tensor, x: Tensor) -> Tensor:
        """[M, B, O] outputs of each row of theta [M, D] on x [B, ...], in evaluation mode."""


class TrainFused(Protocol):
    """All local steps of plain SGD at once: theta <- theta - rate (mean gradient + decay theta)."""

    def __call__(
        self,
        theta: Tensor,
        normalisation: tuple[Tensor, Tensor],
        sample_indices: Tensor,
        counts: StepCounts,
        rate: float,
        decay: float,
    ) -> tuple[Tensor, Tensor]:
        """(theta [M, D] after all steps, [M] the sum over steps of the mean loss of the batch).

        Args:
            theta: [M, D], left as it is. normalisation: offset and scale, [F], [C] or [1]: inputs are offset + scale x.
            sample_indices: [S, M, B] int64 samples of each step, of which the first `counts` are real; a client
                without real samples in a step does not make it.
        """


@runtime_checkable
class FusesSgd(Protocol):
    """A model that can train its clients in one launch of a GPU, or in one call."""

    def fused_sgd(self, x: Tensor, y: Tensor, batch_size: int) -> TrainFused | None:
        """How, on raw samples x [n, F] or [n, H, W, C] and targets y, at most `batch_size` a step; None: it cannot."""


@runtime_checkable
class TaskModel(Protocol):
    """A model that is no network, such as a direction or cluster centres; it defines its own metrics.

    Attributes:
        kind: its name in `conf/model`, which an algorithm names in `learns`.
        dim, num_stats, layers: as in `Model`; statistics are constants that both ends know.
        module: preprocessing of a sample, with the input size that a client computes on.
    """

    kind: str
    dim: int
    num_stats: int
    layers: tuple[int, ...]
    module: nn.Module

    def init(self, key: Key) -> tuple[Tensor, Tensor]:
        """First parameters [D] and statistics [C], drawn from `key`."""

    def metrics(self, theta: Tensor, stats: Tensor, test: Iterable[Tensor]) -> Mapping[str, Tensor]:
        """Scalars that say how good one model is (theta [D], stats [C]), by name; the main one first.

        Args:
            test: batches [B, ...] of the test inputs, for metrics that need them.
        """


AnyModel = Model | TaskModel
"""Any model that a run learns."""


def kind_of(model: AnyModel) -> str:
    """What an algorithm names in `learns`."""
    return model.kind if isinstance(model, TaskModel) else NETWORK


def kind_made_by(factory: Callable[..., Any]) -> str:
    """As `kind_of`, of the model that a factory makes; a `TaskModel` is made by its class, or by a partial of it."""
    made: Any = factory.func if isinstance(factory, functools.partial) else factory
    return str(made.kind) if isinstance(made, type) and hasattr(made, "kind") else NETWORK


def frozen_of(model: AnyModel) -> Mapping[str, Tensor]:
    """A model's frozen tensors; a `TaskModel` has none."""
    return {} if isinstance(model, TaskModel) else model.frozen


def num_frozen(model: AnyModel) -> int:
    """How many frozen numbers it has."""
    return sum(tensor.numel() for tensor in frozen_of(model).values())


def tensors_of(model: AnyModel) -> tuple[ParameterTensor, ...]:
    """Sizes and kinds of a model's parameter tensors; those of a `TaskModel` have no kind."""
    if isinstance(model, TaskModel):
        return tuple(ParameterTensor(size) for size in model.layers)
    return model.tensors
