"""Random draws of a network in training, such as dropout, from the run's keys instead of torch's generator.

Draw c of a forward pass of client i is row i of `StepDraws.key.fold_in(c).uniform(ids, n)`, n the entries that the
client's own tensor has, in row-major order; an entry is kept where its uniform number is below 1 - p. So masks do not
depend on which clients are in a batch, and a longer batch begins with the mask of a shorter one.

Three places where the same masks are drawn:

    `Dropout`        a layer of stacked clients, for `nn.Dropout` and `nn.Dropout2d` in a chain of known layers
    `key_dropouts`   torch's dropout modules inside any other module: `KeyedDraws` is active in their calls alone
    `KeyedDraws`     around the whole pass of a module that draws otherwise, such as attention; it looks at every
                     operation, which costs a few microseconds each

Shape legend: M clients, B batch, C channels, H height, W width, F features, n draws of a client.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fedcomp.model.batched.layers import Pass, stack_images
from fedcomp.model.contract import StepDraws
from fedcomp.random.keys import Key

_SWITCHES = ("dropout_p", "dropout", "train", "training")
"""Arguments that, when 0 or False, say that an operation draws nothing."""
_BELOW_ONE = 1 - 2.0**-24


class UnkeyedDraw(ValueError):
    """A draw that cannot be made from the run's keys. `what`: what the model does, as the end of a sentence."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the model {what}")
        self.what = what


class KeyedDraws(TorchDispatchMode):
    """While it is active, torch's random operations draw from the run's keys.

    An operation that has no keyed form raises `UnkeyedDraw`; so does every draw after `close`, as by a module's own
    activation checkpointing, which calls it again in the backward pass; ours says from which draw on (`again_from`).

    Attributes:
        calls: draws so far. in_dropout_module: whether one of torch's dropout modules is being called.
        drew_elsewhere: whether anything else has drawn.
        around: whether it is active around the whole pass, not in the calls of dropout modules alone.
    """

    def __init__(
        self,
        draws: StepDraws,
        clients_first: bool = False,
        extreme: bool = False,
        folded: bool = False,
        around: bool = True,
    ) -> None:
        """`clients_first`: the first axis of drawn tensors is the clients, as under `vmap`; else there is one client.

        `folded`: the first axis is M B, client after client, each with as many entries.

        `extreme`: uniform numbers are 0 or almost 1, so that a trial notices dropout of any probability.
        """
        super().__init__()
        self.draws, self.clients_first, self.extreme, self.folded = draws, clients_first, extreme, folded
        self.around = around
        self.calls, self.in_dropout_module, self.drew_elsewhere, self.closed = 0, False, False, False

    def close(self) -> None:
        """The forward pass is over."""
        self.closed = True

    @contextlib.contextmanager
    def again_from(self, call: int) -> Iterator[None]:
        """Inside, a part of the forward pass is computed: anew once that is over, with its draws from `call` on."""
        if not self.closed:
            yield
            return
        kept, self.calls, self.closed = self.calls, call, False
        try:
            with self if self.around else contextlib.nullcontext():
                yield
        finally:
            self.calls, self.closed = kept, True

    def uniform(self, shape: torch.Size, device: torch.device) -> Tensor:
        """Float32 uniform numbers on [0, 1) of this shape: the next draw."""
        if self.closed:
            raise UnkeyedDraw(
                "draws random numbers in its backward pass, as activation checkpointing does, where they "
                "would differ from those of the forward pass; leave the checkpointing or the dropout out"
            )
        own = shape[1:] if self.clients_first else shape
        num_clients = len(self.draws.ids)
        if self.folded and shape[0] % num_clients == 0:
            own = torch.Size((shape[0] // num_clients, *shape[1:]))
        elif self.clients_first and shape[0] != num_clients:
            # A RuntimeError, as of vmap itself: `Functional` then runs clients one after another.
            raise RuntimeError("a random draw without an axis of clients")
        self.drew_elsewhere |= not self.in_dropout_module
        drawn = self.draws.uniform(self.calls, math.prod(own)).view(shape).to(device)
        self.calls += 1
        return torch.where(drawn < 0.5, 0.0, _BELOW_ONE) if self.extreme else drawn

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch wraps `__torch_dispatch__` to keep its compiler out, which doubles the cost of an operation."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not _is_random(func):
            return func(*args, **kwargs)
        draw = _DRAWS.get(func)
        if draw is not None:
            return draw(self, *args, **kwargs)
        arguments = func._schema.arguments
        given = {one.name: one.default_value for one in arguments if one.has_default_value()} | kwargs
        given |= {one.name: value for one, value in zip(arguments, args)}
        if any(not given.get(name, True) for name in _SWITCHES):
            return func(*args, **kwargs)
        raise UnkeyedDraw(
            f"draws random numbers by {func}, which has no form with the run's keys; use dropout, "
            "torch.bernoulli or torch.rand, or leave it out"
        )


@functools.cache
def _is_random(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


def _bernoulli(mode: KeyedDraws, x: Tensor, p: float | Tensor | None = None, generator: Any = None) -> Tensor:
    """1 with probability p (None: with probability x), else 0, in the type of x."""
    return (mode.uniform(x.shape, x.device) < (x if p is None else p)).to(x.dtype)


def _bernoulli_(mode: KeyedDraws, x: Tensor, p: float | Tensor = 0.5, generator: Any = None) -> Tensor:
    return x.copy_(mode.uniform(x.shape, x.device) < p)


def _native_dropout(mode: KeyedDraws, x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """(x * mask / (1 - p), mask), the form of dropout on a GPU."""
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    mask = mode.uniform(x.shape, x.device) < 1 - p
    return x * mask * (1 / (1 - p)), mask


def _rand(mode: KeyedDraws, size: Any, **options: Any) -> Tensor:
    drawn = mode.uniform(torch.Size(size), torch.device(options.get("device") or "cpu"))
    return drawn.to(options.get("dtype") or torch.get_default_dtype())


def _rand_like(mode: KeyedDraws, x: Tensor, **options: Any) -> Tensor:
    return mode.uniform(x.shape, x.device).to(options.get("dtype") or x.dtype)


def _uniform_(mode: KeyedDraws, x: Tensor, low: float = 0.0, high: float = 1.0, generator: Any = None) -> Tensor:
    return x.copy_(mode.uniform(x.shape, x.device) * (high - low) + low)


_DRAWS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.bernoulli.default: _bernoulli,
    torch.ops.aten.bernoulli.p: _bernoulli,
    torch.ops.aten.bernoulli_.float: _bernoulli_,
    torch.ops.aten.bernoulli_.Tensor: _bernoulli_,
    torch.ops.aten.native_dropout.default: _native_dropout,
    torch.ops.aten.rand.default: _rand,
    torch.ops.aten.rand_like.default: _rand_like,
    torch.ops.aten.uniform_.default: _uniform_,
}


@dataclass
class Drawing:
    """What a thread's copy of a module draws from: the mode of the gradient being computed, else None."""

    mode: KeyedDraws | None = None


def key_dropouts(module: nn.Module, drawing: Drawing) -> None:
    """From now on the module's dropout modules draw from `drawing.mode` in training."""
    for part in module.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
            part.forward = functools.partial(_keyed, part, part.forward, drawing)


def _keyed(part: nn.Module, forward: Callable[[Tensor], Tensor], drawing: Drawing, x: Tensor) -> Tensor:
    if not part.training:
        return forward(x)
    assert drawing.mode is not None, "a gradient of a model that draws needs `draws`"
    drawing.mode.in_dropout_module = True
    try:
        with drawing.mode:
            return forward(x)
    finally:
        drawing.mode.in_dropout_module = False


def trial_draws(extreme: bool = False) -> KeyedDraws:
    """Draws of one client from a fixed key, to try a module with. `extreme`: as in `KeyedDraws`."""
    return KeyedDraws(StepDraws(Key(("trial",)), torch.zeros(1, dtype=torch.int64)), extreme=extreme)


@dataclass(frozen=True)
class Dropout:
    """Dropout of stacked clients, of entries or of whole channels; nothing in evaluation.

    Attributes:
        p: probability that an entry becomes 0; the others are divided by 1 - p.
        of_channels: one draw for each channel [B, C] of a client instead of one for each entry.
    """

    p: float
    of_channels: bool = False

    def __call__(self, x: Tensor, state: Pass) -> Tensor:
        if not state.training:
            return x
        if self.p == 1:
            return x * 0
        num_clients = state.num_clients
        if x.dim() == 3:
            return x * self._noise(state, x.shape, x.dtype)
        channels = x.shape[1] // num_clients
        size = (1, 1) if self.of_channels else x.shape[2:]
        return x * stack_images(self._noise(state, (num_clients, x.shape[0], channels, *size), x.dtype))

    def _noise(self, state: Pass, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """0 or 1 / (1 - p), [M, B, F] or [M, B, C, H, W]."""
        assert state.draws is not None, "a gradient of a model that draws needs `draws`"
        drawn = state.draws.uniform(state.calls, math.prod(shape[1:])).view(shape)
        state.calls += 1
        return (drawn < 1 - self.p).to(dtype).div_(1 - self.p)
