"""Convolutions of M clients at once, in four forms that compute the same; which is fastest depends on the device.

    grouped   one grouped convolution over the clients' blocks of channels
    looped    one plain convolution a client, one after another
    unfolded  every patch as a column (im2col), then one batched matrix product
    streamed  one plain convolution a client, side by side on streams of a GPU; elsewhere looped

Shape legend: M clients, B batch, C channels, O output channels, H height, W width.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fedcomp.core.accelerated import code_of, tolerance_of
from fedcomp.model.batched import unfolded
from fedcomp.model.batched.layers import Pass
from fedcomp.model.tunable import FORMS, TunableOperation, Workload
from fedcomp.random.keys import Key

_STREAMS: Any = code_of("fedcomp.model.batched.streamed")
TRIAL = Key(("plan",))
"""Of what forms are compared and measured with: numbers of which none can be taken for another."""


@dataclass(frozen=True)
class Convolution:
    """A convolution of each client, (B, M*C, H, W) to (B, M*O, H', W').

    Attributes:
        weight, bias: places in `Pass.parameters`; None: no bias.
        stride, padding, dilation, groups: as in `nn.Conv2d`.
        frozen: whether the weight is a frozen tensor, so that one plain convolution does for all clients.
        form: one of `tunable.FORMS`, if it is not.
    """

    weight: int
    bias: int | None
    stride: tuple[int, ...]
    padding: tuple[int, ...] | str
    dilation: tuple[int, ...]
    groups: int
    frozen: bool = False
    form: str = FORMS[0]

    def __call__(self, x: Tensor, state: Pass) -> Tensor:
        x, weight = state.factor(x), state.factor(state.parameters[self.weight])
        bias = None if self.bias is None else state.factor(state.parameters[self.bias])
        if self.frozen:
            y = self._shared(x, weight, bias)
        elif self.form == "unfolded" and (state.num_clients > 1 or x.device.type == "cpu"):
            y = self._unfolded(x, weight, bias)
        elif self.form == "streamed" and state.num_clients > 1 and can_fork(x.device):
            y = self._streamed(x, weight, bias)
        elif self.form in ("looped", "streamed") and state.num_clients > 1:
            y = self._looped(x, weight, bias)
        else:
            y = self._grouped(x, weight, bias)
        return y.contiguous(memory_format=torch.channels_last)

    def _shared(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """All clients' samples as one batch."""
        num_clients, batch = weight.shape[0], x.shape[0]
        samples = x.unflatten(1, (num_clients, -1)).flatten(0, 1)
        y = functional.conv2d(samples, weight[0], None, self.stride, self.padding, self.dilation, self.groups)
        y = y.unflatten(0, (batch, num_clients)).flatten(1, 2)
        return y if bias is None else y + bias.flatten()[:, None, None]

    def tunable(self, x: Tensor, state: Pass, size: Workload, trained_before: bool) -> TunableOperation:
        """This convolution on such inputs; trained_before: whether their gradient is needed, for layers before it."""
        parameters, places = state.parameters, [self.weight]
        if self.bias is not None and parameters[self.bias].stride(0):
            places.append(self.bias)
        above: list[Tensor] = []

        def both_ways(form: str, exactly: bool = False) -> tuple[Tensor, ...]:
            inputs, own = x.detach(), [parameters[place].detach() for place in places]
            if exactly:
                inputs, own = inputs.double(), [one.double() for one in own]
            leaves = [*([inputs] if trained_before else []), *own]
            for leaf in leaves:
                leaf.requires_grad_()
            given = list(parameters) if not exactly else [one.double() for one in parameters]
            for place, one in zip(places, own, strict=True):
                given[place] = one
            products = None if exactly else state.products
            y = replace(self, form=form)(inputs, replace(state, parameters=given, products=products))
            if not above:
                above.append(like_samples(TRIAL.fold_in("above"), y))
            return y.detach(), *torch.autograd.grad(y, leaves, above[0].to(y.dtype))

        about = {
            "clients": size.clients,
            "input": list(x.shape),
            "weight": list(state.parameters[self.weight].shape),
            "layer": [self.stride, self.padding, self.dilation, self.groups, self.bias is None],
            "products": str(state.products),
            "input gradient": trained_before,
        }
        tolerance = tolerance_of(state.products, size.device)
        candidates, exact = candidates_on(size.device, size.clients), partial(both_ways, FORMS[0], exactly=True)
        return TunableOperation(about, candidates, both_ways, tolerance, exact)

    def _grouped(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows = weight.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        flat = None if bias is None else bias.flatten()
        groups = weight.shape[0] * self.groups
        return functional.conv2d(x, rows, flat, self.stride, self.padding, self.dilation, groups)

    def _looped(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        num_clients = weight.shape[0]
        biases = [None] * num_clients if bias is None else bias.unbind()
        blocks = zip(x.chunk(num_clients, 1), weight.unbind(), biases, strict=True)
        each = []
        for one, own, add in blocks:
            x_block, kernel = _channels_last(one), _channels_last(own)
            each.append(functional.conv2d(x_block, kernel, add, self.stride, self.padding, self.dilation, self.groups))
        return torch.cat(each, 1)

    def _streamed(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        left, right, above, below = margins = self._margins(weight.shape[3:])
        if left == right and above == below:
            return _STREAMS.convolved(x, weight, bias, (self.stride, (above, left), self.dilation, self.groups))
        x = functional.pad(x, margins)
        return _STREAMS.convolved(x, weight, bias, (self.stride, (0, 0), self.dilation, self.groups))

    def _unfolded(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        margins = self._margins(weight.shape[3:])
        x = functional.pad(x, margins) if any(margins) else x
        return unfolded.convolved(x, weight, bias, (self.stride, self.dilation, self.groups))

    def _margins(self, kernel: torch.Size) -> list[int]:
        """Zeros left, right, above and below, as `functional.pad` takes them."""
        if self.padding == "valid":
            return [0, 0, 0, 0]
        if self.padding == "same":
            total = [step * (side - 1) for side, step in zip(kernel, self.dilation, strict=True)]
            return [part for both in reversed(total) for part in (both // 2, both - both // 2)]
        assert not isinstance(self.padding, str)
        above, left = self.padding
        return [left, left, above, above]


def like_samples(key: Key, x: Tensor) -> Tensor:
    """Uniform numbers in [-1/2, 1/2) of the shape, type and layout of x [N, ...], which differ in every entry."""
    drawn = key.uniform(torch.arange(len(x), device=x.device), x[0].numel()) - 0.5
    return torch.empty_like(x).copy_(drawn.view(x.shape))


def can_fork(device: torch.device) -> bool:
    """Whether convolutions can run on several streams there."""
    return _STREAMS is not None and _STREAMS.can_fork(device)


def candidates_on(device: torch.device, clients: int) -> tuple[str, ...]:
    """The forms that are worth measuring there; without streams, streamed is looped."""
    if clients == 1:  # whose grouped convolution is the plain one
        return FORMS[:1]
    return FORMS if can_fork(device) else tuple(form for form in FORMS if form != "streamed")


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)
