"""Keeps the legs of a run's rounds, and reads them from their device together with the next evaluation.

Between evaluations nothing is read: bits that depend on data stay tensors. With an evaluation, those of all rounds
since the last one go to the host in one copy, which is launched before the evaluation's own and so is there first.

Shape legend: N clients, R repetitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcomp.network.clock import Clock, Times
from fedcomp.network.deadline import Deadline
from fedcomp.network.retime import mean_times
from fedcomp.network.traffic.file import Traffic
from fedcomp.network.traffic.rounds import Round, Template, round_of
from fedcomp.wire import Ledger
from fedcomp.wire.legs import Legs


class TrafficRecorder:
    """The rounds of a run since its last segment, and its clocks.

    Args:
        num_clients: N. repetitions: R of a study; None: a run without repetitions.
        clocks: of each repetition; none: nothing is timed.
        deadline: who is late; its clock is the run's. None: nobody can be.
    """

    def __init__(
        self,
        num_clients: int,
        repetitions: int | None = None,
        clocks: Sequence[Clock] = (),
        deadline: Deadline | None = None,
    ) -> None:
        self.num_clients, self.clocks = num_clients, tuple(clocks)
        self._repeated, self._deadline = repetitions is not None, deadline
        self._logs: list[list[Legs]] = [[] for _ in range(repetitions or 1)]
        self._rounds: list[list[Round]] = [[] for _ in self._logs]
        self._templates: dict[Template, Template] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user is told of the clients' links."""
        return self.clocks[0].links.notes if self.clocks else ()

    @property
    def critical(self) -> np.ndarray:
        """[N] how often each client was the one that an exchange waited for, in all repetitions."""
        return np.sum([clock.critical for clock in self.clocks], axis=0)

    def attach(self, ledger: Ledger) -> None:
        """Let the ledger's rounds be recorded here."""
        ledger.deadline = self._deadline
        if self._repeated:
            ledger.logs = self._logs
        else:
            ledger.log = self._logs[0]

    def restore(self, traffic: Traffic | None) -> None:
        """Go on after the rounds of earlier segments, as far as the clocks are concerned; None: from the start."""
        if traffic is None:
            return
        for clock, rounds in zip(self.clocks, traffic.rounds):
            for one in rounds:
                if self._deadline is not None:
                    self._deadline.remember(one)
                clock.advance(one)

    def submit(self) -> Callable[[], Times]:
        """Begin to read the rounds so far. Returns a function that waits for them and gives `time/...` after them."""
        if not any(self._logs):  # nothing to read; what is said is said of now
            found = self.metrics()
            return lambda: found
        taken = [list(log) for log in self._logs]
        for log in self._logs:
            log.clear()
        read = _begin_reading([leg.amount for log in taken for legs in log for leg in legs.made])

        def finish() -> Times:
            amounts = iter(read())
            for number, log in enumerate(taken):
                for legs in log:
                    legs.made = [replace(leg, amount=next(amounts)) for leg in legs.made]
                    self._append(number, round_of(legs, self.num_clients))
            return self.metrics()

        return finish

    def follow(self) -> list[str]:
        """After a round: with a deadline, whose clock must know it now, read it; what the user is to be told."""
        if self._deadline is None:
            return []
        self.submit()()
        notes, self._deadline.notes = self._deadline.notes, []
        return notes

    def take_segment(self) -> Traffic:
        """All rounds since the last call; waits for the device."""
        self.submit()()
        taken = tuple(map(tuple, self._rounds))
        for rounds in self._rounds:
            rounds.clear()
        seconds = None if self._deadline is None else self._deadline.clock.network.deadline
        return Traffic(self.num_clients, taken, self._repeated, seconds)

    def metrics(self) -> Times:
        """`time/...` after the rounds that have been read."""
        found = mean_times(self.clocks)
        return found if self._deadline is None else found | self._deadline.metrics()

    def _append(self, number: int, one: Round) -> None:
        one = replace(one, template=self._templates.setdefault(one.template, one.template))
        self._rounds[number].append(one)
        if self.clocks:
            self.clocks[number].advance(one)


def _begin_reading(amounts: list[Any]) -> Callable[[], list[int | np.ndarray]]:
    """Launch one copy of all tensors among `amounts`; the function returned waits for it."""
    tensors = [one.reshape(-1) for one in amounts if isinstance(one, Tensor)]
    sizes = [len(one) for one in tensors]
    host, arrived = None, None
    if tensors and tensors[0].device.type != "cpu":
        whole = torch.cat([one.to(torch.int64) for one in tensors])
        host = torch.empty(whole.shape, dtype=torch.int64, pin_memory=whole.device.type == "cuda")
        host.copy_(whole, non_blocking=True)
        if whole.device.type == "cuda":
            arrived = torch.cuda.Event()
            arrived.record(torch.cuda.current_stream(whole.device))

    def finish() -> list[int | np.ndarray]:
        if arrived is not None:
            arrived.synchronize()
        parts = iter(tensors if host is None else host.split(sizes))
        return [next(parts).numpy() if isinstance(one, Tensor) else one for one in amounts]

    return finish
