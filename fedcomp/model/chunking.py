"""How many clients to train at once.

Measured on 2 CPU cores (torch 2.14, medians of interleaved runs; ms a round, by clients at once):

    perceptron 64-32-10, batch 10, 400 clients     1: 140   20: 10.6   100: 5.2   200: 4.9   400: 5.9
    perceptron 784-200-10, batch 32, 100 clients   1: 226    5: 88      10: 69     20: 82    100: 198
    lenet5 in torch, batch 64, 10 clients          1: 346    2: 388      5: 437    10: 455
    cnn4_bn 3x32x32, batch 64, 10 clients          1: 1058   2: 1182     5: 1510   10: 1838

Small layers gain from fewer calls until their rows no longer fit the cache; convolutions keep the cores busy with one
client and lose by grouping. On a GPU launches dominate, so everything that fits goes at once.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fedcomp.model.batched.checkpointing import switch_of
from fedcomp.model.contract import AnyModel

CACHE_BYTES = 8 << 20
# Of the free memory of a GPU; the rest is for the server, the algorithm's rows and other programs.
GPU_SHARE = 0.5
# Rows of D numbers a client at most: parameters, gradient, its tensors before they are joined, two moments, a copy.
ROWS_OF_PARAMETERS = 6
# Copies of an activation: forward, backward, and the layout a convolution works in.
COPIES_OF_ACTIVATIONS = 3
# Copies of those of a checkpointed layer while it is computed again: its tensors need 1.3 of them, but they are taken
# and freed between those of other layers, which cuts glibc's heap into pieces (5 to 9 copies of resident memory).
COPIES_OF_A_LAYER = 9


def chunk_size(
    model: AnyModel,
    device: torch.device,
    input_shape: tuple[int, ...],
    batch_size: int,
    input_dtype: torch.dtype = torch.float32,
) -> int:
    """Clients to train at once, at least 1: on a CPU one client of a convolutional or recurrent network or as many
    others as fit the cache; on a GPU as many as fit half of its free memory."""
    if device.type == "cpu":
        if any(isinstance(part, (nn.modules.conv._ConvNd, nn.RNNBase)) for part in model.module.modules()):
            return 1
        return max(1, CACHE_BYTES // (4 * (model.dim + batch_size * num_activations(model, input_shape, input_dtype))))
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 4 << 30
    return max(1, int(GPU_SHARE * free) // client_bytes(model, input_shape, batch_size, input_dtype))


def client_bytes(
    model: AnyModel, input_shape: tuple[int, ...], batch_size: int, input_dtype: torch.dtype = torch.float32
) -> int:
    """Bytes of float32 that one client needs while it trains: an upper estimate, activations and rows together."""
    always, again = _kept(model, input_shape, input_dtype)
    activations = COPIES_OF_ACTIVATIONS * always + COPIES_OF_A_LAYER * again
    return 4 * (ROWS_OF_PARAMETERS * model.dim + batch_size * activations)


def num_activations(model: AnyModel, input_shape: tuple[int, ...], input_dtype: torch.dtype = torch.float32) -> int:
    """Values that one sample keeps for the backward pass: its input and the output of every innermost part.

    Checkpointed layers keep their inputs alone, and beside them the parts of one layer while it is computed again.
    """
    return sum(_kept(model, input_shape, input_dtype))


def _kept(model: AnyModel, input_shape: tuple[int, ...], input_dtype: torch.dtype) -> tuple[int, int]:
    """Values of one sample: those kept from the forward pass on, and those of a checkpointed layer."""
    sizes, layers = _activations(model, input_shape, input_dtype)
    inside = [sum(sizes[layer.first : layer.end]) for layer in layers]
    return sum(sizes) - sum(inside) + sum(layer.inputs for layer in layers), max(inside, default=0)


def forward_bytes(model: AnyModel, input_shape: tuple[int, ...], num_samples: int, input_dtype: torch.dtype) -> int:
    """Bytes of float32 of a forward pass alone: the samples, and the largest output beside the one before it."""
    sizes, _ = _activations(model, input_shape, input_dtype)
    return 4 * num_samples * (sizes[0] + max(map(sum, zip(sizes, [*sizes[1:], 0]))))


@dataclass
class _Layer:
    """A checkpointed layer: values of its inputs; which of the sizes are of its parts: `first`, up to `end`."""

    inputs: int
    first: int
    end: int = 0


def _activations(
    model: AnyModel, input_shape: tuple[int, ...], input_dtype: torch.dtype
) -> tuple[list[int], list[_Layer]]:
    """Values of one sample: of its input, and of the output of every innermost part; and the checkpointed layers."""
    sizes = [torch.Size(input_shape).numel()]
    layers: list[_Layer] = []

    def record(part: nn.Module, inputs: tuple[Tensor, ...], output: object) -> None:
        if isinstance(part, nn.RNNBase):  # gates, cell and output of every layer and position
            sizes.append(6 * part.hidden_size * part.num_layers * inputs[0].shape[:-1].numel())
        elif isinstance(output, Tensor):
            sizes.append(output.numel())

    def begin(layer: nn.Module, inputs: tuple[object, ...], named: dict[str, object]) -> None:
        # What is given by name, such as a mask, is the same for all layers; but for a layer's only input.
        values = [one.numel() for one in (*inputs, *named.values()) if isinstance(one, Tensor)]
        layers.append(_Layer(values[0], len(sizes)))

    def end(layer: nn.Module, inputs: object, output: object) -> None:
        layers[-1].end = len(sizes)

    innermost = [part for part in model.module.modules() if next(part.children(), None) is None]
    hooks = [part.register_forward_hook(record) for part in innermost]
    switch = switch_of(model.module)
    for layer in () if switch is None else switch.layers:
        hooks += [layer.register_forward_pre_hook(begin, with_kwargs=True), layer.register_forward_hook(end)]
    training = model.module.training
    try:
        with torch.no_grad():
            try:
                model.module.eval()(torch.zeros(1, *input_shape, dtype=input_dtype))
            except ValueError:  # it normalises by the batch, in evaluation too: of two samples, a half each
                del sizes[1:], layers[:]
                model.module(torch.zeros(2, *input_shape, dtype=input_dtype))
                sizes[1:] = [size // 2 for size in sizes[1:]]
                layers[:] = [replace(layer, inputs=layer.inputs // 2) for layer in layers]
    finally:
        model.module.train(training)
        for hook in hooks:
            hook.remove()
    return sizes, layers
