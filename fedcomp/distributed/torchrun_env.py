"""Which process of a run this is, as torchrun says by environment variables."""

from __future__ import annotations

import os
from dataclasses import dataclass

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class TorchrunEnv:
    """Which of several processes this is, as torchrun says by environment variables.

    Attributes:
        rank, size: which of how many. local_rank, local_size: the same among those on this machine.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int


def torchrun_env() -> TorchrunEnv | None:
    """Which process this is of those that torchrun started; None: it is alone."""
    if any(name not in os.environ for name in NAMES) or os.environ["WORLD_SIZE"] == "1":
        return None
    return TorchrunEnv(*(int(os.environ[name]) for name in NAMES[:4]))
