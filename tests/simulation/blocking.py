"""A watch for what makes the host wait for a GPU: copies between the two that block until it has done all before."""

import traceback
from pathlib import Path

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedcomp.simulation.cuda_graphs.capture import Work

PACKAGE = str(Path(__file__).parents[2] / "fedcomp")


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
            inside = [frame for frame in traceback.extract_stack() if frame.filename.startswith(PACKAGE)]
            self.found.append(f"{name} in {inside[-1].filename}:{inside[-1].lineno}" if inside else name)
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
        assert not watch.found, watch.found
        return work


def _devices(tree) -> set[str]:
    return {leaf.device.type for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)}
