"""Any `nn.Module` called with rows of parameters, by `torch.func`: one client's pass, and what it draws from.

Shape legend: M clients, D parameters, C running statistics, B batch, O outputs.
"""

import contextlib
import threading
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedcomp.model.batched import lstm
from fedcomp.model.batched.checkpointing import switch_of
from fedcomp.model.batched.dropout import Drawing, KeyedDraws, key_dropouts, trial_draws
from fedcomp.model.batched.padding import Places, leave_out, random_inputs, reads_real_samples_only
from fedcomp.model.contract import Model, StepDraws
from fedcomp.model.flat import Make, copy_sharing_frozen, flatten, statistics_of
from fedcomp.model.precision import product_type

Outputs = tuple[Tensor, Tensor]
"""Of a module, and its new statistics [C]."""


class _Thread(threading.local):
    """A thread's own copy of the module, and the device of its buffers that are no statistics; None before its use.

    Attributes: at_once: as in `lstm.Calls`.
    """

    module: nn.Module | None = None
    device: torch.device | None = None
    at_once = False


class ModuleCalls(Model):
    """A model that calls the module itself with one client's parameters and statistics.

    Attributes:
        draws_anywhere: whether others than torch's dropout modules draw random numbers in training.
        takes_padding: whether empty places of a batch change nothing but their own outputs: tried on samples of
            `input_shape`.
    """

    def __init__(
        self,
        module: nn.Module,
        input_shape: tuple[int, ...],
        make: Make | None = None,
        precision: str = "fp32",
        vocab_size: int | None = None,
    ) -> None:
        """`input_shape`: of one sample. `vocab_size`: of inputs that are tokens; None: inputs are floats.

        ValueError for an unknown precision, and for a module that draws in its backward pass.
        """
        super().__init__(module, make)
        self.products = product_type(precision)
        self.names = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
        self.stat_names = list(statistics_of(module))
        self._own = _Thread()
        self.takes_padding = self._takes_padding(input_shape, vocab_size)
        self._find_draws(input_shape, vocab_size)

    @torch.no_grad()
    def outputs(self, theta: Tensor, stats: Tensor, x: Tensor) -> Tensor:
        self._worker().eval()
        return self._call(theta, stats.to(theta.dtype), as_inputs(x, theta.dtype))[0]

    @torch.no_grad()
    def _takes_padding(self, input_shape: tuple[int, ...], vocab_size: int | None) -> bool:
        theta, stats = flatten(self.module)
        self._worker().train()

        def call(x: Tensor, real: Tensor | None) -> Outputs:
            with self._trial(trial_draws(extreme=True)):
                return self._call(theta, stats, x, real)

        return reads_real_samples_only(call, input_shape, vocab_size)

    def _find_draws(self, input_shape: tuple[int, ...], vocab_size: int | None) -> None:
        """Sets `draws_in_training` and `draws_anywhere` by a trial call. UnkeyedDraw: the backward pass draws too."""
        theta, stats = flatten(self.module)
        x = random_inputs(4, input_shape, vocab_size, torch.Generator().manual_seed(0))
        self._worker().train()
        mode = trial_draws()
        with self._trial(mode):
            outputs, _ = self._call(theta.requires_grad_(), stats, x)
        self.draws_in_training, self.draws_anywhere = mode.calls > 0, mode.drew_elsewhere
        if self.draws_in_training:
            mode.close()
            with self._trial(mode):
                torch.autograd.grad(outputs.sum(), theta)

    @contextlib.contextmanager
    def _trial(self, mode: KeyedDraws) -> Iterator[None]:
        """Inside, the worker draws from `mode`."""
        self._own.drawing.mode = mode
        try:
            with mode:
                yield
        finally:
            self._own.drawing.mode = None

    def _worker(self) -> nn.Module:
        """This thread's own copy of the module: a functional call puts the rows into it while it runs."""
        if self._own.module is None:
            self._own.module = copy_sharing_frozen(self.module)
            self._own.places, self._own.drawing = Places(), Drawing()
            leave_out(self._own.module, self._own.places)
            key_dropouts(self._own.module, self._own.drawing)
            lstm.give_rule(self._own.module, self._own)
            if (switch := switch_of(self._own.module)) is not None:
                switch.drawing = self._own.drawing
        return self._own.module

    def _others(self, device: torch.device) -> dict[str, Tensor]:
        """Buffers that are no statistics, such as counts of batches, on `device`: copied there once in each thread.

        A CUDA graph cannot capture a copy from the host.
        """
        if self._own.device != device:
            self._own.device = device
            self._own.others = {
                name: buffer.to(device) for name, buffer in self.module.named_buffers() if name not in self.stat_names
            }
        return self._own.others

    @contextlib.contextmanager
    def _drawing(self, draws: StepDraws | None, first: bool, on: torch.device, folded: bool = False) -> Iterator[None]:
        """Inside, the worker draws from `draws`, for one gradient; `first`, `folded`: as in `KeyedDraws`."""
        if draws is None or not self.draws_in_training:
            yield
            return
        self._own.drawing.mode = KeyedDraws(draws, first, folded=folded, around=self.draws_anywhere)
        # A GPU's fused attention draws inside its kernel.
        fused = self.draws_anywhere and on.type == "cuda"
        with sdpa_kernel(SDPBackend.MATH) if fused else contextlib.nullcontext():
            yield

    def _outputs(self, theta: Tensor, stats_C: Tensor, x_B: Tensor, real_B: Tensor | None = None) -> Outputs:
        """`_call` in training, with the draws and the products of the gradient that is being computed."""
        mode = self._own.drawing.mode
        cast = contextlib.nullcontext() if self.products is None else self._low_precision(x_B.device.type)
        drawing = mode if mode is not None and mode.around else contextlib.nullcontext()
        with drawing, cast:  # which keeps no cast weights: within a CUDA graph they would outlive it
            outputs, stats = self._call(theta, stats_C, x_B, real_B)
        if mode is not None:
            mode.close()
        return outputs.to(theta.dtype), stats

    def _low_precision(self, device_type: str) -> torch.autocast:
        return torch.autocast(device_type, self.products, cache_enabled=False)

    def _call(self, theta: Tensor, stats_C: Tensor, x_B: Tensor, real_B: Tensor | None = None) -> Outputs:
        """Outputs [B, O] and statistics [C] of the module called with one client's parameters [D] and buffers.

        With parameters [M, D] the module gets the tensors of all clients, [M, *shape].
        """
        views = self.parameters(theta) if theta.dim() == 2 else (part[0] for part in self.parameters(theta[None]))
        parameters = dict(zip(self.names, views))
        # Clones: BatchNorm updates its buffers in place.
        floats = dict(zip(self.stat_names, (part[0].clone() for part in self.statistics(stats_C[None]))))
        module = self._worker()
        others = {name: buffer.clone() for name, buffer in self._others(x_B.device).items()}
        self._own.places.real = real_B
        try:
            outputs = functional_call(module, parameters | self.frozen_on(theta) | others | floats, (x_B,))
        finally:
            self._own.places.real = None
        new = torch.cat([part.flatten() for part in floats.values()]) if floats else stats_C
        return outputs, new


def as_inputs(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x in the type of the parameters, or as it is where it holds tokens."""
    return x.to(dtype) if x.is_floating_point() else x
