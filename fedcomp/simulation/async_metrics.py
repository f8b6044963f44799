"""Copies metrics from the device to the host: one transfer an evaluation, on a GPU asynchronously to the next round.

A GPU executes its queue of kernels while the host goes on. Reading a value makes the host wait, and nothing new is
launched meanwhile; so a round reads nothing, and an evaluation reads all its values in one transfer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedcomp.core.accelerated import Form, is_safe

SIDE = Form("evaluations on a side stream", "those on the main stream")

Scalars = Mapping[str, Any]
"""Named scalars: tensors, which stay on their device until they are read, or plain values."""
ScalarGroups = tuple[Scalars, ...]
HostScalars = tuple[dict[str, Any], ...]
"""The same groups, with Python numbers in place of tensors."""


class MetricsReader:
    """Reads an evaluation's values: at once, as on CPUs, in studies and with several processes.

    Attributes:
        asynchronous: whether the next round should be launched before the values are read.
    """

    asynchronous = False

    def read(self, launch: Callable[[], ScalarGroups]) -> Callable[[], HostScalars]:
        """Launch an evaluation. Returns a function that waits for the values; it may be called once.

        Args:
            launch: computes the values without reading anything back to the host. The closure must keep its input
                tensors alive; they must not be modified.
        """
        found = to_host(*launch())
        return lambda: found


class SideStreamReader(MetricsReader):
    """Evaluates on a side stream, and copies the values to pinned memory in one transfer.

    The values are the same bit for bit. With several streams at work cuBLAS promises that only if each has a
    workspace of its own (its manual, "Results reproducibility"), which torch gives to every pair of handle and stream.
    The caching allocator keeps the memory of the two streams apart, so this takes what one evaluation needs on top.
    """

    asynchronous = True

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._side: Any = torch.cuda.Stream(device)

    def read(self, launch: Callable[[], ScalarGroups]) -> Callable[[], HostScalars]:
        """Launch after the work queued on the current stream so far, concurrently with what is queued next.

        The first evaluation is made on both streams, and if values differ, all others are made on the main one.
        """
        first: list[AsyncResult] = []

        def aside() -> tuple[Tensor]:
            first.append(self._launch(launch))
            first[0].copied.synchronize()
            return (first[0].host.clone(),)

        if not SIDE.agrees("an evaluation", aside, lambda: (pack(launch()).cpu(),)):
            return MetricsReader().read(launch)
        return first[0] if first else self._launch(launch)

    def _launch(self, launch: Callable[[], ScalarGroups]) -> "AsyncResult":
        self._side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._side):
            parts = launch()
            bits = pack(parts)
            host = _pinned(bits.shape)
            host.copy_(bits, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record(self._side)
        return AsyncResult(copied, host, parts, launch)


@dataclass(frozen=True)
class AsyncResult:
    """An evaluation that is running. Keep a reference to it until it has been called.

    Its tensors were allocated on the main stream. If they were freed while the side stream still reads them, the
    allocator would give their memory to the next round, which the main stream writes without waiting for the side
    stream. Keeping the tensors alive is what torch's documentation of `Tensor.record_stream` recommends.

    Attributes:
        copied: event recorded once all values are in `host`. host: [n] int64, of `pack`. parts: what the values are.
        launch: keeps the tensors alive that the evaluation reads.
    """

    copied: Any
    host: Tensor
    parts: ScalarGroups
    launch: Callable[[], ScalarGroups]

    def __call__(self) -> HostScalars:
        """Waits for the values and returns them."""
        self.copied.synchronize()
        return unpack(self.parts, self.host)


def reader_for(device: torch.device) -> MetricsReader:
    """The reader for a run in one process on `device`."""
    return SideStreamReader(device) if device.type == "cuda" and not is_safe() else MetricsReader()


def to_host(*parts: Scalars) -> HostScalars:
    """The values of `parts` as Python numbers; waits for those on a GPU, which come in one transfer."""
    if all(tensor.device.type == "cpu" for tensor in _tensors(parts)):
        return tuple(
            {name: value.item() if isinstance(value, Tensor) else value for name, value in part.items()}
            for part in parts
        )
    return unpack(parts, pack(parts).cpu())


def pack(parts: ScalarGroups) -> Tensor:
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


def unpack(parts: ScalarGroups, bits: Tensor) -> HostScalars:
    """`parts` with numbers for tensors, from what `pack` made of them, on the host."""
    whole, real = iter(bits.tolist()), iter(bits.view(torch.float64).tolist())

    def number(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        both = next(whole), next(real)
        return both[value.is_floating_point()]

    return tuple({name: number(value) for name, value in part.items()} for part in parts)


def _tensors(parts: ScalarGroups) -> list[Tensor]:
    return [value for part in parts for value in part.values() if isinstance(value, Tensor)]


def _pinned(shape: torch.Size) -> Tensor:
    """Pinned memory, for asynchronous copies. Its allocator reuses it only after the copy."""
    return torch.empty(shape, dtype=torch.int64, pin_memory=True)
