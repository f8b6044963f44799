"""A GPU for tests without one: torch's device without data, and a watch for what would make the host wait for it.

Tensors of the device `meta` have shapes and no values, so whatever reads one fails, and any copy from the host to it is
one that a GPU would make. A blocking one waits until the GPU has done everything that it was given before.
"""

import traceback
from dataclasses import replace
from pathlib import Path
from typing import Self

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedcomp.core.cohort import Receivers
from fedcomp.simulation.chunks.client_data import ClientShards
from fedcomp.simulation.cuda_graphs.capture import Work
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Link, Payload
from tests.conformance import world

DEVICE = torch.device("meta")
PACKAGE = str(Path(world.__file__).parents[2] / "fedcomp")


class UncheckedLink(Link):
    """As in all rounds but the first with clients, which reads entries: their ranges, and whether all are finite."""

    both_ends = False

    def _carry(self, kind: int, payload: Payload, who: Receivers | None) -> Payload:
        return payload


def moved(sim: Simulation, sizes: tuple[int, ...] = world.SIZES, **changes) -> Simulation:
    """The simulation on the device."""
    parts = list(torch.arange(sum(sizes)).split(list(sizes)))
    there = {"dataset": sim.dataset.to(DEVICE), "shards": ClientShards.of(parts, DEVICE), "device": DEVICE}
    return replace(sim, **there, link=UncheckedLink, **changes)


class Blocking(TorchDispatchMode):
    """Notes copies between host and device that block, and the operation's place in the package.

    Attributes:
        captured: whether a CUDA graph would be captured: then no tensor of the host may be touched at all.
    """

    def __init__(self, captured: bool = False) -> None:
        super().__init__()
        self.captured = captured
        self.found: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = function(*args, **kwargs)
        given, made = _devices((args, kwargs)), _devices(out)
        name = function._schema.name
        on_host = self.captured and "cpu" in given | made
        across = name in ("aten::_to_copy", "aten::copy_") and len(given | made) > 1
        blocking = across and not (kwargs.get("non_blocking") or args[2:3] == (True,))
        if on_host or blocking:
            self.note(name)
        return out

    def note(self, name: str) -> None:
        """Keep what was done, and where."""
        inside = [frame for frame in traceback.extract_stack() if frame.filename.startswith(PACKAGE)]
        self.found.append(f"{name} in {inside[-1].filename}:{inside[-1].lineno}" if inside else name)

    def __enter__(self) -> Self:
        self._lists = _Lists(self)
        self._lists.__enter__()
        return super().__enter__()

    def __exit__(self, *error) -> None:
        super().__exit__(*error)
        self._lists.__exit__(*error)


class _Lists(TorchFunctionMode):
    """Notes tensors that are made on the device out of Python's numbers, which is a copy that blocks."""

    def __init__(self, blocking: Blocking) -> None:
        super().__init__()
        self.blocking = blocking

    def __torch_function__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        if function in (torch.tensor, torch.as_tensor, Tensor.new_tensor) and (
            self.blocking.captured or out.device == DEVICE
        ):
            self.blocking.note(f"torch.{function.__name__}")
        return out


class NoHost:
    """A capture whose work touches the device alone, as that of a CUDA graph must. Implements `Capture`."""

    def __init__(self) -> None:
        self.recorded = 0

    def capture(self, work: Work, changed) -> Work:
        """The work, having been run once."""
        self.recorded += 1
        with Blocking(captured=True) as watch:
            work()
        assert watch.found == []
        return work


def _devices(tree) -> set[str]:
    return {leaf.device.type for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)}
