"""How values come from the device to the host: all of an evaluation at once, and on a GPU beside the next round.

A GPU works through what it was given while the host goes on. Whoever asks for a value waits until it is there, and
until then nothing new is launched; so a round asks for nothing, and an evaluation for all its values in one transfer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

Values = Mapping[str, Any]
"""Named scalars: tensors, which lie on their device until they are read; anything else is what it is."""
Parts = tuple[Values, ...]
Numbers = tuple[dict[str, Any], ...]
"""The same parts, with numbers for tensors."""


class Readings(Protocol):
    """A way to read an evaluation's values.

    Attributes:
        late: whether the next round is to be launched before the values are asked for.
    """

    @property
    def late(self) -> bool: ...

    def read(self, launch: Callable[[], Parts]) -> Callable[[], Numbers]:
        """Launch an evaluation; what it returns waits for the values, once.

        Args:
            launch: computes the values from tensors that it refers to itself, which nobody changes afterwards; reads
                nothing back to the host.
        """
        ...


class AtOnce:
    """Reads where it stands: on a CPU, where there is nothing to wait for, and wherever rounds go hand in hand."""

    late = False

    def read(self, launch: Callable[[], Parts]) -> Callable[[], Numbers]:
        """Read now."""
        found = numbers(*launch())
        return lambda: found


class Aside:
    """Evaluates on a stream of its own, from where one transfer brings the values into pinned memory.

    What it computes is the same bit for bit. With several streams at work cuBLAS promises that only if each has a
    workspace of its own (its manual, "Results reproducibility"), which torch gives to every pair of handle and stream.
    The caching allocator keeps the memory of the two streams apart, so this takes what one evaluation needs on top.
    """

    late = True

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._side: Any = torch.cuda.Stream(device)

    def read(self, launch: Callable[[], Parts]) -> Callable[[], Numbers]:
        """Launch behind what the current stream has been given so far, beside what it is given next."""
        self._side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._side):
            parts = launch()
            bits = pack(parts)
            host = _pinned(bits.shape)
            host.copy_(bits, non_blocking=True)
            there = torch.cuda.Event()
            there.record(self._side)
        return Underway(there, host, parts, launch)


@dataclass(frozen=True)
class Underway:
    """An evaluation on its stream; to be kept until it has been called.

    Its tensors were allocated on the main stream, and the allocator knows of no other: freed while they are still read
    on the side, their memory would at once be the next round's, which the main stream writes without waiting
    (`Tensor.record_stream` in torch's documentation, whose own advice is to hold on to tensors where one can).

    Attributes:
        there: happens when all values are in `host`. host: [n] int64, as `pack` gives them. parts: what they are.
        launch: refers to everything that the evaluation reads.
    """

    there: Any
    host: Tensor
    parts: Parts
    launch: Callable[[], Parts]

    def __call__(self) -> Numbers:
        """The values, waited for."""
        self.there.synchronize()
        return unpack(self.parts, self.host)


def readings_of(device: torch.device) -> Readings:
    """The readings of a run by itself on `device`."""
    return Aside(device) if device.type == "cuda" else AtOnce()


def numbers(*parts: Values) -> Numbers:
    """The values of `parts`, waited for; those on a GPU in one transfer."""
    if all(tensor.device.type == "cpu" for tensor in _tensors(parts)):
        return tuple(
            {name: value.item() if isinstance(value, Tensor) else value for name, value in part.items()}
            for part in parts
        )
    return unpack(parts, pack(parts).cpu())


def pack(parts: Parts) -> Tensor:
    """[n] int64 of all tensors in their order: whole numbers, and the bits of others as float64. All stay exact."""
    tensors = _tensors(parts)
    device = next((one.device for one in tensors if one.device.type != "cpu"), torch.device("cpu"))
    if not tensors:
        return torch.empty(0, dtype=torch.int64, device=device)
    every = [
        one.detach().to(device, torch.float64).view(torch.int64)
        if one.is_floating_point()
        else one.to(device, torch.int64)
        for one in tensors
    ]
    return torch.stack(every)


def unpack(parts: Parts, bits: Tensor) -> Numbers:
    """`parts` with numbers for tensors, from what `pack` made of them, on the host."""
    whole, real = iter(bits.tolist()), iter(bits.view(torch.float64).tolist())

    def number(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        both = next(whole), next(real)
        return both[value.is_floating_point()]

    return tuple({name: number(value) for name, value in part.items()} for part in parts)


def _tensors(parts: Parts) -> list[Tensor]:
    return [value for part in parts for value in part.values() if isinstance(value, Tensor)]


def _pinned(shape: torch.Size) -> Tensor:
    """Memory that the GPU copies to by itself. Its allocator gives it to others only after the copy."""
    return torch.empty(shape, dtype=torch.int64, pin_memory=True)
