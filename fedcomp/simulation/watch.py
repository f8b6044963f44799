"""Notices a loss that is no longer finite, without making a GPU wait for it every round."""

from __future__ import annotations

import torch
from torch import Tensor

from fedcomp.cohort import Cohort

REMEDY = "lower client.lr or server.lr, or set client.clip_norm"


class Diverged(ValueError):
    """A loss became infinite or NaN."""


class LossWatch:
    """Looks at every client's training loss; on a GPU only when `check` is called."""

    def __init__(self) -> None:
        self._unread: list[tuple[int, tuple[int, ...], Tensor]] = []

    def see(self, round_index: int, cohort: Cohort, loss: Tensor) -> None:
        """Note the losses [M] of round `round_index` (1 is the first). Raises Diverged (on a CPU at once)."""
        self._unread.append((round_index, cohort.clients, loss))
        if loss.device.type == "cpu":
            self.check()

    def check(self) -> None:
        """Raises Diverged: a loss seen since the last check is not finite; names the round and the client."""
        unread, self._unread = self._unread, []
        for round_index, clients, loss in unread:
            if bool(torch.isfinite(loss.sum())):
                continue
            bad = (~torch.isfinite(loss)).nonzero().flatten().tolist()
            if not bad:
                continue
            value = float(loss[bad[0]])
            others = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
            raise Diverged(f"round {round_index}: the loss of client {clients[bad[0]]}{others} is {value}; {REMEDY}")
