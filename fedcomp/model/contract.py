"""The contract of a model: flat rows of parameters in, losses and gradients out, for many clients at once.

Shape legend: M clients (rows), A of them still at work, D parameters, C running statistics (BatchNorm), B batch, O
outputs, T the shape of one sample's targets, S steps; of samples F features, or H height, W width and C channels.
"""

import copy
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn

from fedcomp.core.parameter_layout import ParameterTensor
from fedcomp.core.step_counts import StepCounts
from fedcomp.model.flat import Make, draw, flatten, frozen_tensors, reset, statistics_of, tensors_in, trained_parameters
from fedcomp.model.loss import BatchLoss, Loss
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

    def __getitem__(self, clients: slice) -> "Batch":
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

    def of_client(self, row: int) -> "StepDraws":
        """The draws of the client in this row alone."""
        return StepDraws(self.key, self.ids[row : row + 1])


class Model:
    """A network as rows: trained parameters in the order of `parameters()`, statistics in that of `buffers()`.

    Attributes:
        module: the ordinary torch module of one client, on the CPU, which computes the same.
        dim: D, trained parameters. num_stats: C, float buffers (BatchNorm running means and variances).
        layers: size of each trained tensor; sums to D. starts: where each begins in the row. tensors: what each of
            them is.
        frozen: its frozen tensors by name, those of `module` itself, which all clients share.
        draws_in_training: whether gradients need `draws`, as those of a network with dropout.
        loss: of the task, in training; what a subclass computes gradients of.
        shapes, stat_shapes: shape of each trained tensor and of each float buffer.
    """

    draws_in_training = False
    loss: Loss | BatchLoss

    def __init__(self, module: nn.Module, make: Make | None = None) -> None:
        """`make` returns a freshly initialised module of the same shapes; None: `module` is reset in place."""
        self.module = module
        self.frozen: Mapping[str, Tensor] = frozen_tensors(module)
        self._frozen_copies: dict[tuple[torch.device, torch.dtype], dict[str, Tensor]] = {}
        self._replaced: Mapping[str, Tensor] = {}
        self.make: Make = make if make is not None else lambda: reset(module)
        self.shapes = tuple(parameter.shape for parameter in trained_parameters(module))
        self.layers = tuple(shape.numel() for shape in self.shapes)
        *self.starts, self.dim = accumulate(self.layers, initial=0)
        self.tensors = tensors_in(module)
        self.stat_shapes = tuple(buffer.shape for buffer in statistics_of(module).values())
        self.stat_sizes = tuple(shape.numel() for shape in self.stat_shapes)
        self.num_stats = sum(self.stat_sizes)

    @property
    def drops_empty_places(self) -> bool:
        """Whether empty places are removed before a call: the host must find them, so no CUDA graph can record it."""
        return False

    def outputs_at_once(self, theta: Tensor) -> int | None:
        """Of how many samples `outputs` is best asked for, where it computes each by itself; None: of any number."""
        return None

    def goes_through_models(self, theta: Tensor) -> bool:
        """Whether `batch_loss` computes one model after another, so that any number takes no more memory than one."""
        return False

    def init(self, key: Key) -> tuple[Tensor, Tensor]:
        """First parameters [D] and statistics [C], float32, by the module's own initialisation drawn from `key`.

        The frozen tensors that it draws too are dropped: all keys share those of `module`.
        """
        return flatten(draw(self.make, key))

    def gradient(self, theta: Tensor, batch: Batch, draws: StepDraws | None = None) -> Gradient:
        """Gradient of the mean loss of each client, theta [A, D], over its own batch, in training mode.

        Args:
            draws: what dropout draws from, where the model `draws_in_training`.
        """
        raise NotImplementedError

    def batch_loss(self, theta: Tensor, batch: Batch, draws: StepDraws | None = None) -> tuple[Tensor, Tensor]:
        """([A] float64 loss, [A, C] statistics) of `gradient` with the same arguments, by the forward pass alone.

        The network computes in the dtype of `theta`; the loss of its outputs is taken in float64.
        """
        raise NotImplementedError

    def outputs(self, theta: Tensor, stats: Tensor, x: Tensor) -> Tensor:
        """[B, O] outputs of one model (theta [D], stats [C]) on x [B, ...], in evaluation mode."""
        raise NotImplementedError

    def client_outputs(
        self, theta: Tensor, batch: Batch, training: bool, draws: StepDraws | None = None
    ) -> tuple[Tensor, Tensor]:
        """([A, B, O, *T] outputs of each client's model, theta [A, D], on its own batch, [A, C] statistics after it).

        Autograd leads from the outputs to `theta` where that requires gradients. Those of empty places mean nothing.

        Args:
            training: whether BatchNorm and dropout work as in `gradient`, with its `draws`; else as in `outputs`.
        """
        raise NotImplementedError

    def fused_sgd(self, x: Tensor, y: Tensor) -> "TrainFused | None":
        """How clients are trained in one call on a CPU; None: they make their steps one by one.

        Args:
            x: raw samples [n, F] or [n, H, W, C]. y: their targets.
        """
        return None

    def frozen_on(self, like: Tensor) -> dict[str, Tensor]:
        """The frozen tensors on the device of `like`, copied there once, float32 ones in the dtype of `like`."""
        place = like.device, like.dtype
        if place not in self._frozen_copies:
            self._frozen_copies[place] = _placed(self.frozen, like)
        found = self._frozen_copies[place]
        return {**found, **_placed(self._replaced, like)} if self._replaced else found

    def with_frozen(self, tensors: Mapping[str, Tensor]) -> Self:
        """The same network over these tensors instead of its frozen ones of their names.

        `frozen` and `module` stay, and so do the copies on a device, which both share.
        """
        other = copy.copy(self)
        other._replaced = tensors
        return other

    def parameters(self, theta: Tensor) -> list[Tensor]:
        """Views [M, *shape] of the rows [M, D], one a trained tensor."""
        return [part.unflatten(1, shape) for part, shape in zip(theta.split(self.layers, 1), self.shapes)]

    def statistics(self, stats: Tensor) -> list[Tensor]:
        """Views [M, *shape] of the rows [M, C], one a float buffer."""
        return [
            part.unflatten(1, shape) if shape else part[:, 0]
            for part, shape in zip(stats.split(self.stat_sizes, 1), self.stat_shapes)
        ]


def _placed(tensors: Mapping[str, Tensor], like: Tensor) -> dict[str, Tensor]:
    return {
        name: tensor.to(like.device, like.dtype if tensor.dtype is torch.float32 else tensor.dtype)
        for name, tensor in tensors.items()
    }


@runtime_checkable
class RowModel(Protocol):
    """A network that evaluates many models on the same inputs at once."""

    def outputs_of_rows(self, theta: Tensor, x: Tensor) -> Tensor:
        """[M, B, O] outputs of each row of theta [M, D] on x [B, ...], in evaluation mode."""


@dataclass(frozen=True)
class SgdSteps:
    """All local steps of plain SGD of some clients: theta <- theta - rate (mean gradient + decay theta).

    Attributes:
        theta: [M, D], left as it is. normalisation: offset and scale, [F], [C] or [1]: inputs are offset + scale x.
        sample_indices: [S, M, B] int64 samples of each step, of which the first `counts` are real; a client without
            real samples in a step does not make it.
    """

    theta: Tensor
    normalisation: tuple[Tensor, Tensor]
    sample_indices: Tensor
    counts: StepCounts
    rate: float
    decay: float


TrainFused = Callable[[SgdSteps], tuple[Tensor, Tensor]]
"""Makes all of them at once: (theta [M, D] after them, [M] the sum over steps of the mean loss of the batch)."""


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
