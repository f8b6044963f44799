"""What a local solver sees of its clients.

Shape legend: M clients of a chunk, A <= M of them still at work, D parameters, C running statistics, B batch,
O outputs, T the shape of one sample's targets, P models of a client.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from fedcomp.core.parameter_layout import ParameterTensor
from fedcomp.model.contract import Batch, Gradient


@dataclass(frozen=True)
class Batching:
    """How a client goes through its samples in one round.

    Attributes:
        batch_size: samples a step; a client that holds fewer takes them all.
        epochs: passes over the client's data, each in a fresh order; used when `steps` is None.
        steps: number of steps, however many passes that is.
        replacement: draw each batch uniformly with replacement instead of going through in order.
    """

    batch_size: int
    epochs: int = 1
    steps: int | None = None
    replacement: bool = False


GradFn = Callable[[Tensor, Batch, int], Gradient]
"""`grad_fn(theta [A, D], batch, step) -> Gradient`: the hook through which a method changes the local gradient."""


@dataclass(frozen=True)
class LocalResult:
    """What local training leaves.

    Attributes:
        value: [M, D] what was trained after the last step: parameters, or what an algorithm makes of them.
        stats: [M, C] running statistics after it.
        loss: [M] mean batch loss over the client's steps.
        memory: the solver's persistent memory after this round; () if it was given none.
    """

    value: Tensor
    stats: Tensor
    loss: Tensor
    memory: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class LocalLoop:
    """The steps of a chunk's clients in one round: who makes them, on what, from where.

    Attributes:
        solver: makes the steps, a `LocalSolver`. data: the chunk, a `LocalData`.
        theta: [M, D] and stats: [M, C], where each client starts; left as they are.
        lr: the learning rate of this round. grad_fn: the gradient hook; None: the plain gradient.
    """

    solver: Any
    data: Any
    theta: Tensor
    stats: Tensor
    lr: float
    grad_fn: GradFn | None = None


class LoopRunner(Protocol):
    """Makes the steps of a loop faster where it can, as with CUDA graphs."""

    def run(self, loop: LocalLoop) -> LocalResult | None:
        """What `loop.solver.run` returns; None: the steps have to be made one by one."""


class LocalData(Protocol):
    """A chunk of clients with their data.

    Attributes:
        ids: [M] int64 client numbers.
        num_samples: [M] int64 samples that each holds.
        tensors: the model's parameter tensors, which the D columns come from.
        loop_runner: replays loops as CUDA graphs; None: every loop runs step by step.
    """

    @property
    def ids(self) -> Tensor: ...
    @property
    def num_samples(self) -> Tensor: ...
    @property
    def loop_runner(self) -> LoopRunner | None: ...
    @property
    def tensors(self) -> tuple[ParameterTensor, ...]: ...

    def batches(self, batching: Batching) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Steps of the round as (x, y, weight); rows shrink as clients finish."""

    def samples(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """All samples once, in each client's own order and as they are (no augmentation), as `batches` gives them."""

    def take(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """(x [M, B, ...], y [M, B]): the samples at `positions` [M, B] of each client's own list, as they are."""

    def num_steps(self, batching: Batching) -> Tensor:
        """[M] int64 steps that each client makes."""

    def gradient(self, theta: Tensor, batch: Batch, step: int | Tensor) -> Gradient:
        """The plain gradient of the batch loss: the innermost `GradFn`."""

    def outputs(self, theta: Tensor, batch: Batch, step: int | Tensor | None = None) -> tuple[Tensor, Tensor]:
        """([A, B, O, *T] outputs of each client's model, theta [A, D], on its own batch, [A, C] statistics after it).

        Autograd leads from the outputs to `theta` where that requires gradients: `own_loss` makes a hook of it. Outputs
        of places without a sample (`batch.weight`) mean nothing.

        Args:
            step: of training, where dropout and BatchNorm work as in `gradient`, and which counts as a gradient; None:
                as in a test, such as the outputs of a teacher.
        """

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """[A] the task's mean loss of each client's batch, from its outputs in training."""

    def losses(self, theta: Tensor, batch: Batch, step: int) -> tuple[Tensor, Tensor]:
        """Losses of P models of each client on the same batch, by forward passes alone.

        All P see the same samples and draw the same masks of dropout; nothing of it counts as a gradient.

        Args:
            theta: [A, P, D].
        Returns:
            [A, P] float64 mean losses in training mode, and [A, P, C] running statistics after each.
        """
