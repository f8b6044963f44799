"""Whether a round had clients yet: a flag in the state of methods whose first messages differ from the later ones."""

import torch
from torch import Tensor


def flag() -> Tensor:
    """[1] int64: 0, before the first round; on the host, where it is asked. `torch.ones_like` of it after a round."""
    return torch.zeros(1, dtype=torch.int64, device="cpu")


def yes(started: Tensor) -> bool:
    """Whether it is 1."""
    return bool(started)
