"""The operations that code runs, whatever device its tensors are on."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

READS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::unique", "aten::masked_select", "aten::is_nonzero")
"""What makes the host wait for a GPU: reads of values, and shapes that depend on them."""


def reads(name: str, args: tuple[Any, ...]) -> bool:
    """Whether the operation makes the host wait; a mask as an index is looked up as `nonzero` is, out of sight."""
    masks = name in ("aten::index", "aten::index_put", "aten::index_put_") and any(
        one is not None and one.dtype in (torch.bool, torch.uint8) for one in args[1]
    )
    return name in READS or masks


class Operations(TorchDispatchMode):
    """Notes the names of operations, or of those that `wanted` picks by their name and arguments."""

    def __init__(self, wanted: Callable[[str, tuple[Any, ...]], bool] = lambda name, args: True) -> None:
        super().__init__()
        self.wanted, self.names = wanted, list[str]()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if self.wanted(function._schema.name, args):
            self.names.append(function._schema.name)
        return function(*args, **(kwargs or {}))
