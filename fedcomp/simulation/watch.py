"""Notices a value of a client that is no longer finite, without making a GPU wait for it every round."""

from __future__ import annotations

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Metrics
from fedcomp.cohort import Cohort

REMEDY = "lower client.lr or server.lr, or set client.clip_norm"


class Diverged(ValueError):
    """A client's loss, or another value of it that must be finite, became infinite or NaN."""


class Watch:
    """Looks at every metric with one value a client, such as training losses; on a GPU only when `check` is called."""

    def __init__(self) -> None:
        self._unread: list[tuple[int, tuple[int, ...], str, Tensor]] = []

    def see(self, round_index: int, cohort: Cohort, metrics: Metrics) -> None:
        """Note the metrics [M] of round `round_index` (1 is the first). Raises Diverged (on a CPU at once)."""
        for name, values in metrics.items():
            if values.dim():
                self._unread.append((round_index, cohort.clients, name, values))
                if values.device.type == "cpu":
                    self.check()

    def check(self) -> None:
        """Raises Diverged: a value seen since the last check is not finite; names the round and the client."""
        unread, self._unread = self._unread, []
        for round_index, clients, name, values in unread:
            if bool(torch.isfinite(values.sum())):
                continue
            bad = (~torch.isfinite(values)).nonzero().flatten().tolist()
            if not bad:
                continue
            what = "loss" if name == "train/loss" else name
            others = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
            where = f"round {round_index}: the {what} of client {clients[bad[0]]}{others}"
            raise Diverged(f"{where} is {float(values[bad[0]])}; {REMEDY}")
