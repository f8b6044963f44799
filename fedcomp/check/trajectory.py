"""A case's rounds, made once for all checks that read them.

Two runs of a fresh simulation each. The first is plain; every round is watched. The second sends bytes, which are
recorded, gives up the old state in every round, and begins after torch's global generator was used: it must end with
the same bits, and only if it does not are the three differences told apart.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from fedcomp.check import noninterference, world
from fedcomp.check.failed import Failed, described, require, require_same
from fedcomp.core.pytree import flatten
from fedcomp.random.global_draws import KEYED, noted_draws
from fedcomp.records.checkpoint import Checkpoint, load, save
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger, WireLink

HALF = 2
"""Rounds before the run is stopped and resumed."""


class Case(Protocol):
    """Makes new simulations of the same run."""

    def simulation(self, **options: Any) -> Simulation:
        """A simulation with a new copy of the algorithm, as after a restart: state on `self` is lost."""


@dataclass
class Watched:
    """What a round did.

    Attributes:
        cohort_size: M. counters: of the round alone.
        changed: what it wrote into the state that it was given; None: nothing.
        idle: which rows of idle clients it changed; None: none. drawn: from whose global generators it drew.
    """

    cohort_size: int
    counters: dict[str, int]
    changed: str | None
    idle: str | None
    drawn: list[str]


@dataclass
class Trajectory:
    """The two runs.

    Attributes:
        case: whose they are. rounds: of the plain run. state, counters: where it ended. half: its checkpoint.
        packed, packed_counters: where the run with bytes ended. record, models: its messages and tested models.
        error: why there is no run with bytes; None: there is one.
    """

    case: Case
    rounds: list[Watched]
    state: dict[str, Tensor]
    counters: dict[str, int]
    half: Checkpoint
    packed: dict[str, Tensor]
    packed_counters: dict[str, int]
    record: list[noninterference.RecordedRound]
    models: list[dict[str, Tensor]]
    error: Exception | None


_MADE: dict[tuple[int, torch.device], Trajectory] = {}


def trajectory(case: Case) -> Trajectory:
    """The case's, made once."""
    key = id(case), world.DEVICE
    if key not in _MADE:  # it keeps the case, so that its id stays its own
        _MADE[key] = _make(case)
    return _MADE[key]


def _make(case: Case) -> Trajectory:
    simulation, whole = case.simulation(), Ledger()
    state, rounds, half = simulation.init(), [], None
    for index in range(simulation.rounds):
        old, before, own = state, _cloned(state), Ledger()
        with noted_draws() as drawn:
            state, result = simulation.round(index, state, own)
        idle = [one for one in range(len(simulation.shards.sizes)) if one not in result.cohort.clients]
        found = _idle(before, flatten(state), idle, len(simulation.shards.sizes))
        rounds.append(Watched(result.cohort.size, own.counters(), _changed(before, flatten(old)), found, drawn))
        whole.merge(own)
        if index + 1 == HALF:
            half = Checkpoint(HALF, state, whole.counters(), 1.0)
            half = Checkpoint(HALF, _saved(half, simulation), half.ledger, 1.0)
    assert half is not None
    made = Trajectory(case, rounds, _cloned(state), whole.counters(), half, {}, {}, [], [], None)
    torch.rand(5)
    try:
        simulation, ledger = case.simulation(), Ledger()
        made.record, made.models, last = noninterference.record(simulation, ledger, donate_state=True)
        made.packed, made.packed_counters = _cloned(last), ledger.counters()
    except Exception as error:
        made.error = error
    return made


def check_wire(case: Case) -> None:
    """Packing messages into bytes gives the same state bit for bit, and the same ledger."""
    made = trajectory(case)
    if made.error is not None:
        raise Failed(f"with bytes: {made.error}") from made.error
    if not _agrees(made):
        ledger = Ledger()
        require_same("with bytes", world.run(case.simulation(link=WireLink), ledger=ledger), made.state)
        require(ledger.counters() == made.counters, f"with bytes: {ledger.counters()} instead of {made.counters}")


def check_repeat(case: Case) -> None:
    """The same seed gives the same bits, whatever the state of torch's global generator."""
    made = trajectory(case)
    for index, one in enumerate(made.rounds):
        require(not one.drawn, f"round {index + 1} draws from {', '.join(one.drawn)} global generator: {KEYED}")
    if not _agrees(made):
        torch.rand(5)
        require_same("again", world.run(case.simulation()), made.state)


def check_resume(case: Case) -> None:
    """Saved after two rounds and loaded into a fresh simulation: the same state bit for bit, and the same ledger."""
    made, ledger = trajectory(case), Ledger()
    ledger.restore(made.half.ledger)
    resumed = world.run(case.simulation(), made.half.state, first=HALF, ledger=ledger)
    require_same(f"resumed after round {HALF}", resumed, made.state)
    require(ledger.counters() == made.counters, f"resumed: {ledger.counters()} instead of {made.counters}")


def check_pure(case: Case) -> None:
    """A round does not modify the old state."""
    for index, one in enumerate(trajectory(case).rounds):
        require(one.changed is None, f"round {index + 1}: in the state that it was given, {one.changed}")


def check_donate_state(case: Case) -> None:
    """Rounds that may overwrite the old state in place give the same state bit for bit."""
    made = trajectory(case)
    if not _agrees(made):
        simulation, ledger = case.simulation(), Ledger()
        state = simulation.init()
        for index in range(simulation.rounds):
            state, _ = simulation.round(index, state, ledger, donate_state=True)
        require_same(
            "in place (put_rows overwrites the old rows: take what you need of them before)", state, made.state
        )


def check_idle_rows(case: Case) -> None:
    """Rows of idle clients in the state are unchanged."""
    for index, one in enumerate(trajectory(case).rounds):
        require(one.idle is None, f"round {index + 1}: {one.idle}")


def check_server_end(case: Case) -> None:
    """What the server sends, and the models it is tested with, follow from the bytes that came up."""
    made = _recorded(case)
    asked = noninterference.check_server(case.simulation(), made.record, made.models)
    noninterference.check_senders(case.simulation(), made.record, made.models, _two_clients(made), asked)


def check_client_ends(case: Case) -> None:
    """What a client sends follows from its own samples and the bytes that came down (for two of the clients)."""
    made = _recorded(case)
    for client in _two_clients(made):
        noninterference.check_client(case.simulation(), made.record, client)


CHECKS = tuple(check for name, check in list(vars().items()) if name.startswith("check_"))


def _agrees(made: Trajectory) -> bool:
    """Whether the run that sends bytes, gives up its states and began otherwise ended as the plain one."""
    same = made.packed.keys() == made.state.keys() and made.packed_counters == made.counters
    return same and all(torch.equal(made.packed[name], tensor) for name, tensor in made.state.items())


def _two_clients(made: Trajectory) -> list[int]:
    cohorts = [one.cohort.clients for one in made.record if one.cohort.size]
    return sorted({cohorts[0][0], cohorts[-1][-1]})


def _recorded(case: Case) -> Trajectory:
    made = trajectory(case)
    if made.error is not None:
        raise Failed(f"there is no run with bytes: {made.error}") from made.error
    return made


def _cloned(state: Any) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in flatten(state).items()}


def _changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> str | None:
    for name, tensor in before.items():
        if not torch.equal(after[name], tensor):
            return f"{name} {described(after[name], tensor)}"
    return None


def _idle(before: dict[str, Tensor], after: dict[str, Tensor], idle: list[int], num: int) -> str | None:
    for name, tensor in before.items():
        if tensor.dim() == 2 and tensor.shape[0] == num and not torch.equal(tensor[idle], after[name][idle]):
            return f"{name} of idle clients {idle} {described(after[name][idle], tensor[idle])}"
    return None


def _saved(checkpoint: Checkpoint, simulation: Simulation) -> Any:
    """The state as a checkpoint gives it back."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        save(path, checkpoint, "hash")
        return load(path, simulation.init(), "hash").state
