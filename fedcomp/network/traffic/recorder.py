"""Keeps the legs of a run's rounds, and reads them from their device together with the next evaluation.

Between evaluations nothing is read: bits that depend on data stay tensors. With an evaluation, those of all rounds
since the last one go to the host in one copy, which is launched before the evaluation's own and so is there first.

Shape legend: N clients.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from fedcomp.network.clock import Clock, Times
from fedcomp.network.deadline import Deadline
from fedcomp.network.retime import mean_of
from fedcomp.network.traffic.file import Traffic
from fedcomp.network.traffic.rounds import Round, Template, round_of
from fedcomp.wire import Ledger
from fedcomp.wire.legs import RoundLog


@dataclass
class RecordedRepetition:
    """What is kept of one repetition, or of a run without repetitions.

    Attributes:
        clock: None: nothing is timed. deadline: says who is late, by this clock; None: nobody can be.
        log: rounds that have not been read. rounds: that have, since the last segment.
    """

    clock: Clock | None = None
    deadline: Deadline | None = None
    log: RoundLog = field(init=False)
    rounds: list[Round] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log = RoundLog(deadline=self.deadline)

    def append(self, one: Round) -> None:
        """Add a round that has been read."""
        self.rounds.append(one)
        if self.clock is not None:
            self.clock.advance(one)

    def restore(self, one: Round) -> None:
        """Go on after a round of an earlier segment."""
        if self.deadline is not None:
            self.deadline.remember(one)
        if self.clock is not None:
            self.clock.advance(one)

    def metrics(self) -> Times:
        """`time/...` and `deadline/...` of a metrics line."""
        found = {} if self.clock is None else self.clock.metrics()
        return found if self.deadline is None else found | self.deadline.metrics()


class TrafficRecorder:
    """The rounds of a run since its last segment, and its clocks.

    Args:
        num_clients: N. repetitions: of a study, or the one of a run.
        repeated: whether it is a study.
    """

    def __init__(
        self, num_clients: int, repetitions: Sequence[RecordedRepetition] = (), repeated: bool = False
    ) -> None:
        self.num_clients, self.repetitions = num_clients, tuple(repetitions) or (RecordedRepetition(),)
        self._repeated = repeated
        self._templates: dict[Template, Template] = {}  # equal ones are one object

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user is told of the clients' links."""
        clock = self.repetitions[0].clock
        return () if clock is None else clock.links.notes

    @property
    def critical(self) -> np.ndarray:
        """[N] how often each client was the one that an exchange waited for, in all repetitions; 0 without a clock."""
        found = np.zeros(self.num_clients, np.int64)
        for one in self.repetitions:
            found += 0 if one.clock is None else one.clock.critical
        return found

    def attach(self, ledger: Ledger) -> None:
        """Let the ledger's rounds be recorded here."""
        logs = [one.log for one in self.repetitions]
        if self._repeated:
            ledger.logs = logs
        else:
            (ledger.log,) = logs

    def restore(self, traffic: Traffic | None) -> None:
        """Go on after the rounds of earlier segments, as far as the clocks are concerned; None: from the start."""
        for repetition, rounds in zip(self.repetitions, () if traffic is None else traffic.rounds):
            for one in rounds:
                repetition.restore(one)

    def submit(self) -> Callable[[], Times]:
        """Begin to read the rounds so far. Returns a function that waits for them and gives `time/...` after them."""
        taken = [(one, one.log.rounds) for one in self.repetitions if one.log.rounds]
        if not taken:  # nothing to read; what is said is said of now
            found = self.metrics()
            return lambda: found
        for one, _ in taken:
            one.log.rounds = []
        amounts = [amount for _, log in taken for legs in log for amount in legs.on_device]
        read = _begin_reading(amounts) if amounts else None

        def finish() -> Times:
            arrived = None if read is None else read()
            for repetition, log in taken:
                for legs in log:
                    if arrived is not None:
                        legs.resolve(arrived)
                    one = round_of(legs, self.num_clients)
                    template = self._templates.setdefault(one.template, one.template)
                    repetition.append(replace(one, template=template))
            return self.metrics()

        return finish

    def follow(self) -> list[str]:
        """After a round: with a deadline, whose clock must know it now, read it; what the user is to be told."""
        deadlines = [one.deadline for one in self.repetitions if one.deadline is not None]
        if not deadlines:
            return []
        self.submit()()
        return [note for deadline in deadlines for note in deadline.take_notes()]

    def take_segment(self) -> Traffic:
        """All rounds since the last call; waits for the device."""
        self.submit()()
        taken = tuple(tuple(one.rounds) for one in self.repetitions)
        for one in self.repetitions:
            one.rounds = []
        deadline = self.repetitions[0].deadline
        return Traffic(self.num_clients, taken, self._repeated, None if deadline is None else deadline.seconds)

    def metrics(self) -> Times:
        """`time/...` and `deadline/...` after the rounds that have been read; of a study means over repetitions."""
        return mean_of([one.metrics() for one in self.repetitions])


def _begin_reading(tensors: list[Tensor]) -> Callable[[], Iterator[np.ndarray]]:
    """Launch one copy of all tensors, one or more; the function returned waits for it."""
    if tensors[0].device.type == "cpu":
        return lambda: (one.reshape(-1).numpy() for one in tensors)
    flat = [one.reshape(-1).to(torch.int64) for one in tensors]
    whole, arrived = torch.cat(flat), None
    host = torch.empty(whole.shape, dtype=torch.int64, pin_memory=whole.device.type == "cuda")
    host.copy_(whole, non_blocking=True)
    if whole.device.type == "cuda":
        arrived = torch.cuda.Event()
        arrived.record(torch.cuda.current_stream(whole.device))

    def finish() -> Iterator[np.ndarray]:
        if arrived is not None:
            arrived.synchronize()
        return (one.numpy() for one in host.split([len(one) for one in flat]))

    return finish
