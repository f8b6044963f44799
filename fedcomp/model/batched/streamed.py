"""Plain convolutions of M clients side by side on streams of a GPU, forwards and backwards.

The streams are forked from the current one and joined to it again.

Shape legend: M clients, B batch, C channels, O output channels, H height, W width, k a side of the kernel.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Options = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]
"""Stride, padding, dilation and groups of a convolution."""
MAX_STREAMS = 8
"""Streams in use at once. Torch has 32 a device in all, and an eighth of a GPU is about what one small client fills."""

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def convolved(x: Tensor, weight: Tensor, bias: Tensor | None, options: Options) -> Tensor:
    """(B, M*O, H', W') from x (B, M*C, H, W), weight (M, O, C, k, k) and bias (M, O)."""
    return _Streamed.apply(x, weight, bias, options)


class _Streamed(torch.autograd.Function):
    """Forks and joins by itself on the way back too.

    Autograd alone would run each client's backward on its forward's stream and order the streams by events, but it
    marks gradients that cross from one to another by `record_stream`; memory that is so marked is not used again within
    the capture of a CUDA graph, which would then hold the gradients of all its steps. Here nothing crosses but between
    fork and join. Backward itself runs on the stream of its forward ("CUDA semantics", stream semantics of backward
    passes), so on the one that forked.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, options: Options) -> Tensor:
        stride, padding, dilation, groups = options
        num_clients = len(weight)

        def convolve(piece: tuple[Tensor, Tensor, Tensor | None]) -> tuple[Tensor, Tensor, Tensor]:
            block, own, add = piece
            # Copies in memory of this stream, so that what is kept for the way back is this stream's to free.
            block, own = (part.clone(memory_format=torch.channels_last) for part in (block, own))
            return block, own, torch.conv2d(block, own, add, stride, padding, dilation, groups)

        biases = [None] * num_clients if bias is None else bias.unbind()
        pieces = list(zip(x.chunk(num_clients, 1), weight.unbind(), biases, strict=True))
        blocks, owns, each = zip(*map_on_streams(convolve, pieces, x.device), strict=True)
        ctx.save_for_backward(*blocks, *owns)
        ctx.options, ctx.has_bias = options, bias is not None
        return torch.cat(each, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        stride, padding, dilation, groups = ctx.options
        saved = ctx.saved_tensors
        num_clients = len(saved) // 2
        for_x, for_weight, for_bias, _ = ctx.needs_input_grad
        wanted = [for_x, for_weight, for_bias and ctx.has_bias]

        def back(piece: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor | None, ...]:
            above, block, own = piece
            sizes = [own.shape[0]] if ctx.has_bias else None
            return torch.ops.aten.convolution_backward(
                above, block, own, sizes, stride, padding, dilation, False, [0, 0], groups, wanted
            )

        pieces = list(zip(gradient.chunk(num_clients, 1), saved[:num_clients], saved[num_clients:], strict=True))
        of_x, of_weight, of_bias = zip(*map_on_streams(back, pieces, gradient.device), strict=True)
        return (
            torch.cat(of_x, 1) if wanted[0] else None,
            torch.stack(of_weight) if wanted[1] else None,
            torch.stack(of_bias) if wanted[2] else None,
            None,
        )


def can_fork(device: torch.device) -> bool:
    """Whether work can run on several streams there."""
    return device.type == "cuda"


def map_on_streams(function: Callable[[Piece], Result], pieces: Sequence[Piece], device: torch.device) -> list[Result]:
    """`function` of every piece, in their order; each on one of up to `MAX_STREAMS` streams, taking turns.

    Every stream waits for the current one first, and the current one for all of them last, also where a piece fails:

    - in a CUDA graph a capture spreads to streams that wait for it, and must get all of them back ("CUDA semantics",
      CUDA graphs: work that forks to other streams has to rejoin);
    - a piece's results lie in memory of its stream, which the allocator gives to that stream's next piece as soon as
      the host lets go of them. That piece comes after the next fork, so after all that the current stream did with
      them. For the same reason what pieces read must be held until this returns, and needs no `record_stream`.
    """
    current: Any = torch.cuda.current_stream(device)
    sides = side_streams(device)[: len(pieces)]
    for side in sides:
        side.wait_stream(current)
    try:
        results = []
        for place, piece in enumerate(pieces):
            with torch.cuda.stream(sides[place % len(sides)]):
                results.append(function(piece))
        return results
    finally:
        for side in sides:
            current.wait_stream(side)


@functools.cache
def side_streams(device: torch.device) -> list[Any]:
    """The device's side streams, made once: cuBLAS and cuDNN keep a workspace for each stream that they have seen."""
    return [torch.cuda.Stream(device) for _ in range(MAX_STREAMS)]
