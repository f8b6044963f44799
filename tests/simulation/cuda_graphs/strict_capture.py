"""A capture for tests: does the work again, and holds it to what a CUDA graph demands of it."""

from collections.abc import Sequence

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedcomp.simulation.cuda_graphs.capture import Work


class StrictCapture:
    """Each replay must read and write the memory that the first one did.

    Attributes:
        recorded: pieces of work so far. replays: how often they ran.
    """

    def __init__(self) -> None:
        self.recorded = 0
        self.replays = 0

    def capture(self, work: Work, changed: Sequence[Tensor]) -> Work:
        """The work, watched; run once before, as graphs are, and what it changed is put back."""
        self.recorded += 1
        before = [tensor.clone() for tensor in changed]
        first = self._watched(work)
        for tensor, old in zip(changed, before, strict=True):
            assert tensor.untyped_storage().data_ptr() in first, "what is said to change is never touched"
            tensor.copy_(old)

        def replay() -> None:
            self.replays += 1
            assert self._watched(work) == first, "a replay touches other memory than the recorded one"

        return replay

    def _watched(self, work: Work) -> set[int]:
        with _Watch() as watch:
            work()
        return watch.touched


class _Watch(TorchDispatchMode):
    """Notes the memory that operations touch and did not make themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: set[int] = set()
        self._made: dict[int, Tensor] = {}  # by address; kept, so that none is used again

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, Tensor) and leaf.untyped_storage().data_ptr() not in self._made:
                self.touched.add(leaf.untyped_storage().data_ptr())
        out = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor) and leaf.untyped_storage().data_ptr() not in self.touched:
                self._made[leaf.untyped_storage().data_ptr()] = leaf
        return out
