"""Independent pieces of work side by side on a GPU: on streams forked from the current one and joined to it again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

MAX_STREAMS = 8
"""Streams in use at once. Torch has 32 a device in all, and an eighth of a GPU is about what one small client fills."""

Piece = TypeVar("Piece")
Result = TypeVar("Result")


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
