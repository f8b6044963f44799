"""The operations that code runs, whatever device its tensors are on."""

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Operations(TorchDispatchMode):
    """Notes the names of operations, or of those that `wanted` picks by their name and arguments."""

    def __init__(self, wanted: Callable[[str, tuple[Any, ...]], bool] = lambda name, args: True) -> None:
        super().__init__()
        self.wanted, self.names = wanted, list[str]()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if self.wanted(function._schema.name, args):
            self.names.append(function._schema.name)
        return function(*args, **(kwargs or {}))
