"""Sessions of a small run whose values are read at once or late, and what they leave in their folders."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcomp.algorithm.bicompfl.bicompfl_gr import BiCompFLGR
from fedcomp.algorithm.fedpm import FedPM
from fedcomp.client.adam import Adam as LocalAdam
from fedcomp.display.progress import Progress
from fedcomp.server.adam import Adam
from fedcomp.simulation.async_metrics import to_host
from fedcomp.simulation.round_result import RoundResult
from fedcomp.simulation.simulation import Simulation
from fedcomp.tracking.contract import Jsonl, RunInfo
from fedcomp.training.session import Session
from fedcomp.training.writer import FolderWriter
from fedcomp.wire import Ledger
from tests.conformance import world
from tests.parts import Compressor, ErrorFeedback, FedAvg, Sgd, Sign, TopK


def fedavg() -> FedAvg:
    """With memories at both ends, and bits that depend on data."""
    uplink = Compressor(TopK(0.2, "rice"), ErrorFeedback())
    return FedAvg(Sgd(lr=0.1, momentum=0.9), Adam(), uplink, Compressor(Sign(), ErrorFeedback()))


METHODS = {
    "fedavg": (fedavg, world.with_batch_norm),
    "fedpm": (lambda: FedPM(LocalAdam(lr=0.1, batch_size=4)), world.with_batch_norm),
    "bicompfl": (lambda: BiCompFLGR(client=LocalAdam(lr=0.1, batch_size=4), block=8), world.with_batch_norm),
}


@dataclass(frozen=True)
class Late:
    """Reads when asked. `soon`: computes at once; else as late as a side stream could, when asked too."""

    soon: bool
    asynchronous: bool = True

    def read(self, launch):
        parts = launch() if self.soon else None
        return lambda: to_host(*(parts if parts is not None else launch()))


BOTH = [Late(soon=True), Late(soon=False)]


@dataclass
class Told(Jsonl):
    """Notes lines in `events`."""

    events: list[str]

    def log(self, record) -> None:
        self.events.append(f"line {record['round']}")


@dataclass(frozen=True)
class Watched:
    """A simulation that notes its rounds in `events`, and does `before` and `after` to them."""

    simulation: Simulation
    events: list[str]
    before: Any = None
    after: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.simulation, name)

    def round(self, index: int, state: Any, ledger: Ledger, donate_state: bool = False) -> tuple[Any, RoundResult]:
        self.events.append(f"round {index + 1}")
        if self.before is not None:
            self.before(index + 1)
        state, outcome = self.simulation.round(index, state, ledger, donate_state)
        return state, outcome if self.after is None else self.after(index + 1, outcome)


class Noting(FolderWriter):
    """Notes checkpoints in the tracker's `events`."""

    def checkpoint(self, position) -> None:
        super().checkpoint(position)
        self.tracker.events.append(f"checkpoint {position.round}")


def session_in(folder: Path, how, sim=None, every=(1, 3), before=None, after=None) -> Session:
    events: list[str] = []
    sim = sim if sim is not None else world.simulation(fedavg(), world.with_batch_norm, rounds=7)
    info = RunInfo(folder, "toy", "hash", 0, {})
    rounds = Watched(sim, events, before, after)
    return Session(rounds, Noting(info, Told(events), Progress("quiet"), pictures=False), *every, reader=how)
