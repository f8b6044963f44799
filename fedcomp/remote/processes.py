"""The two ends of a run between processes: `serve` makes the run, `join` is one of its clients.

The server holds the run's folder and writes the record, as a run of one process does; each client has a folder of its
own below it, with its state. Both save after the same rounds, so either end may be killed and started again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from torch import Tensor

from fedcomp.config import schema
from fedcomp.config.factory import build_simulation
from fedcomp.config.instantiate import build
from fedcomp.core.pytree import restore
from fedcomp.core.version import __version__
from fedcomp.distributed.context import ProcessContext
from fedcomp.records import checkpoint
from fedcomp.records.checkpoint import Checkpoint
from fedcomp.records.metrics_file import Line
from fedcomp.records.run_folder import CHECKPOINT, owned
from fedcomp.remote.connections import ClientEnd, Gone, ServerEnd
from fedcomp.remote.simulation import RemoteSimulation, ServerSimulation, report_of
from fedcomp.simulation.simulation import Simulation
from fedcomp.training.build import prepare
from fedcomp.training.place import RunPlace
from fedcomp.training.session_forms import forms_of_run
from fedcomp.training.train import train
from fedcomp.wire import Ledger
from fedcomp.wire.ledger import GRADIENTS


class ServerProcess(ProcessContext):
    """The process that serves. `end`: its connections; `run`: names the run; `say`: shows a line to the user."""

    over_tcp = True

    def __init__(self, end: ServerEnd, run: str, say: Callable[[str], None]) -> None:
        self._end, self._run, self._say = end, run, say

    def distribute(self, simulation: Simulation, chunk_size: int | None, threads: int | None) -> Simulation:
        remote = ServerSimulation.of(simulation, self._end)
        num = len(simulation.shards.sizes)
        self._say(f"waiting for {num} clients at {self._end.address}: fedcomp-join ... --client 0 to {num - 1}")
        self._end.gather(num, self._run, self._say)
        return remote


def serve(config: DictConfig, end: ServerEnd, say: Callable[[str], None]) -> list[Line]:
    """Make a run with clients that join. Returns its record. Raises as `train`; Gone: a client is gone or late."""
    check(config)
    place = RunPlace(config)
    try:
        lines = train(config, ServerProcess(end, run_name(place), say))
    except BaseException as error:
        end.close(stop=" ".join(str(error).split()) or type(error).__name__)
        raise
    end.close(end=True)
    carried = end.carried
    say(f"bytes of {carried.messages:,} messages: {carried.up:,} up, {carried.down:,} down")
    return lines


def join(config: DictConfig, client: int, connect: Callable[[str], ClientEnd], say: Callable[[str], None]) -> None:
    """Be one client of a run until the server ends it.

    Args:
        connect: gives the connection for the name of the run.
    Raises:
        Gone: the server is gone, refuses, or stopped; the same command joins again.
    """
    check(config)
    place = RunPlace(config)
    folder = place.path / f"client_{client}"
    with owned(folder):
        device = prepare(place, ProcessContext())
        with forms_of_run(config.safe, device, folder, ProcessContext()):
            simulation, _ = build_simulation(config, device)
            if not 0 <= client < len(simulation.shards.sizes):
                raise ValueError(f"there is no client {client}: they are 0 to {len(simulation.shards.sizes) - 1}")
            end = connect(run_name(place))
            try:
                follow(RemoteSimulation.of(simulation, end), end, folder / CHECKPOINT, place.path.parent.name)
            except BaseException as error:
                end.close(why=" ".join(str(error).split()) or "it was interrupted")
                raise
            end.close()
    say(f"client {client}: the run has ended")


def follow(simulation: RemoteSimulation, end: ClientEnd, path: Path, config_hash: str) -> None:
    """Do as the server says, from the state after the round that it begins with."""
    state, ledger, done = None, Ledger(), 0
    while "end" not in (word := end.listen()):
        if "stop" in word:
            raise Gone(f"the server stopped: {word['stop']}; start both again, and they go on")
        if "save" in word:
            kept = {"state": state, "memory": dict(simulation.memory)}
            checkpoint.save(path, Checkpoint(done, kept, {}, 0.0), config_hash)
            end.say(done="saved")
            continue
        index = int(word["round"])
        if state is None:
            state = _state_after(index, simulation, path, config_hash)
        before = ledger.counters().get(GRADIENTS, 0)
        state, result = simulation.round(index, state, ledger)
        done = index + 1
        if end.client in result.cohort.clients:
            end.report(report_of(result, end.client, ledger.counters().get(GRADIENTS, 0) - before))


def _state_after(rounds: int, simulation: RemoteSimulation, path: Path, config_hash: str) -> Any:
    """This client's state after so many rounds, from one of its last two checkpoints."""
    first = simulation.init()
    if not rounds:
        return first
    found = []
    for file in (path, checkpoint.before(path)):
        if not file.exists():
            continue
        saved = checkpoint.read(file)
        if (saved.round, saved.config_hash) == (rounds, config_hash):
            simulation.memory.update(_below("memory.", saved.tensors))
            return restore(first, _below("state.", saved.tensors))
        found.append(saved.round)
    raise ValueError(
        f"the server goes on after round {rounds}, and this client has {found or 'no checkpoints'} in {path.parent}: "
        "bring its folder back, or start the run anew (overwrite=true at the server)"
    )


def _below(name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {path.removeprefix(name): tensor for path, tensor in tensors.items() if path.startswith(name)}


def run_name(place: RunPlace) -> str:
    """Names the run for both ends: its name, hash and seed, and the version of the code."""
    return f"{place.path.parent.parent.name}/{place.path.parent.name}/{place.path.name}, fedcomp {__version__}"


def check(config: DictConfig) -> None:
    """Raise ValueError if the options are not for a run between processes."""
    schema.check(config)
    wrong = {
        "repeats": config.repeats != 1,
        "chunk_size": config.chunk_size not in (None, 1),
        "network": build(config.network) is not None,
        "codec_error": bool(config.codec_error),
        "record_traffic": bool(config.record_traffic),
    }
    for name, given in wrong.items():
        if given:
            raise ValueError(
                f"wire=tcp takes no {name}: the network is real, and every process trains one client; leave it out"
            )
