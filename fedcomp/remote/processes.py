"""The two ends of a run between processes: `serve` makes the run, `join` is one of its clients.

The server holds the run's folder and writes the record, as a run of one process does; each client has a folder of its
own below it, with its state. Both save after the same rounds, so either end may be killed and started again.
"""

import contextlib
import os
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
from fedcomp.model.contract import frozen_of
from fedcomp.provenance.check import run_inputs
from fedcomp.provenance.files import digest
from fedcomp.records import checkpoint
from fedcomp.records.checkpoint import Checkpoint
from fedcomp.records.metrics_file import Line
from fedcomp.records.run_folder import CHECKPOINT, clear, owned
from fedcomp.remote.client_end import ClientEnd, Hello
from fedcomp.remote.frames import Again
from fedcomp.remote.kept import ABSENT, Kept
from fedcomp.remote.run_number import drawn_number, keep_number, number_of
from fedcomp.remote.server_end import ServerEnd
from fedcomp.remote.simulation import RemoteSimulation, ServerSimulation, can_leave_out, report_of, rows_of
from fedcomp.simulation.simulation import Simulation
from fedcomp.training.build import prepare
from fedcomp.training.place import RunPlace
from fedcomp.training.session_forms import forms_of_run
from fedcomp.training.train import train
from fedcomp.wire import Ledger
from fedcomp.wire.ledger import GRADIENTS


class ServerProcess(ProcessContext):
    """The process that serves.

    Args:
        end: its connections. place: of the run. need_all: stop where a client is lost. patience: seconds to wait for
            clients of a run that goes on. say: shows a line to the user.
    """

    over_tcp = True

    def __init__(
        self, end: ServerEnd, place: RunPlace, need_all: bool, patience: float, say: Callable[[str], None]
    ) -> None:
        self._end, self._place, self._need_all, self._patience, self._say = end, place, need_all, patience, say

    def distribute(self, simulation: Simulation, chunk_size: int | None, threads: int | None) -> Simulation:
        end, num = self._end, len(simulation.shards.sizes)
        remote = ServerSimulation.of(simulation, end)
        end.may_go_on, end.kept = can_leave_out(simulation) and not self._need_all, Kept(self._place.path)
        last = self._place.path / CHECKPOINT
        resumes = last.exists() or checkpoint.before(last).exists()
        wait = self._patience if resumes and end.may_go_on else None
        limit = "" if wait is None else f", {wait:g} s at most"
        self._say(f"waiting for {num} clients at {end.address}{limit}: fedcomp-join ... --client 0 to {num - 1}")
        end.gather(num, run_name(self._place, simulation), drawn_number(self._place.path), wait)
        return remote


def serve(
    config: DictConfig, end: ServerEnd, say: Callable[[str], None], need_all: bool = False, patience: float = 600.0
) -> list[Line]:
    """Make a run with clients that join. Returns its record.

    Args:
        need_all, patience, say: as in `ServerProcess`.
    Raises:
        as `train`; Gone: a client is gone or late, and the run cannot go on without it.
    """
    check(config)
    place = RunPlace(config)
    try:
        lines = train(config, ServerProcess(end, place, need_all, patience, say))
    except BaseException as error:
        end.close(stop=why(error))
        raise
    end.close(end=True)
    end.kept.end()
    carried = end.carried
    if not carried.messages:
        return lines
    again = f"; {carried.again:,} more in rounds made again" if carried.again else ""
    say(f"bytes of {carried.messages:,} messages: {carried.up:,} up, {carried.down:,} down{again}")
    if end.kept.absent:
        say(f"{len(end.kept.absent)} rounds were made without some clients, who are named in {place.path / ABSENT}")
    return lines


def join(config: DictConfig, client: int, connect: Callable[[Hello], ClientEnd], say: Callable[[str], None]) -> None:
    """Be one client of a run until the server ends it.

    Args:
        connect: gives the connection.
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
            path, config_hash = folder / CHECKPOINT, "/".join(folder.parts[-3:])  # of this client and seed alone
            has, number = states(path, config_hash), number_of(folder)
            hello = Hello(
                client, run_name(place, simulation), [*has, 0], number if has else None, bool(config.overwrite)
            )
            end = connect(hello)
            try:
                if number not in (None, end.number):
                    clear(folder)
                keep_number(folder, end.number)
                follow(RemoteSimulation.of(simulation, end), end, path, config_hash)
            except BaseException as error:
                end.close(why=why(error))
                raise
            end.close()
    say(f"client {client}: the run has ended")


def why(error: BaseException) -> str:
    """Why this process ends, in one line for the other ends."""
    if isinstance(error, KeyboardInterrupt):
        return "it was interrupted"
    return " ".join(str(error).split()) or type(error).__name__


def follow(simulation: RemoteSimulation, end: ClientEnd, path: Path, config_hash: str) -> None:
    """Do as the server says, from the state after the round that it begins with.

    A round is pure: where the server makes it again, the client goes back to what it had before.
    """
    state, done = None, 0
    before: tuple[Any, dict[str, Tensor]] = None, {}
    while "end" not in (word := end.listen()):
        if "save" in word:
            kept = {"state": state, "memory": dict(simulation.memory)}
            checkpoint.save(path, Checkpoint(done, kept, {}, 0.0), config_hash)
            end.say(done="saved")
            continue
        if "test" in word:
            if state is None:
                state = _state_after(int(word["test"]), simulation, path, config_hash)
            end.report(rows_of(simulation, state, end.client))
            continue
        try:
            if "again" in word:
                raise Again
            index = int(word["round"])
            if state is None:
                state = _state_after(index, simulation, path, config_hash)
            before = state, dict(simulation.memory)
            state, done = told_round(simulation, end, word, state), index + 1
        except Again:
            state = before[0]
            simulation.memory.clear()
            simulation.memory.update(before[1])
            end.say(done="again")


def told_round(simulation: RemoteSimulation, end: ClientEnd, word: Mapping[str, Any], state: Any) -> Any:
    """The state after the round of which the server's word tells, once this client has made it, and reported."""
    index, ledger = int(word["round"]), Ledger()
    simulation.absent[index] = tuple(word["absent"])
    new, result = simulation.round(index, state, ledger)
    if end.client in result.cohort.clients:
        end.report(report_of(result, end.client, ledger.counters()[GRADIENTS]))
    return new


def states(path: Path, config_hash: str) -> dict[int, Checkpoint]:
    """{rounds: this client's state after them}, from its last two checkpoints, as far as they are not damaged."""
    found = []
    for file in (checkpoint.before(path), path):
        if file.exists():
            with contextlib.suppress(checkpoint.Damaged):
                found.append(checkpoint.read(file))
    return {saved.round: saved for saved in found if saved.config_hash == config_hash}


def _state_after(rounds: int, simulation: RemoteSimulation, path: Path, config_hash: str) -> Any:
    """This client's state after so many rounds, which it has said that it has."""
    first = simulation.init()
    if not rounds:  # what lies there the server has not saved: it starts anew
        for file in (path, checkpoint.before(path)):
            file.unlink(missing_ok=True)
        return first
    saved = states(path, config_hash)
    if max(saved) > rounds:  # those rounds are made again: the next state saved must not replace this one
        os.replace(checkpoint.before(path), path)
    tensors = saved[rounds].state
    simulation.memory.update(_below("memory.", tensors))
    return restore(first, _below("state.", tensors))


def _below(name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {path.removeprefix(name): tensor for path, tensor in tensors.items() if path.startswith(name)}


def run_name(place: RunPlace, simulation: Simulation) -> str:
    """Names the run for both ends: its name, hash and seed, the version of the code, and fingerprints of what it reads.

    Those are of the data set, of the user's own code, and of the model's files and the tensors that nobody trains.
    """
    read = run_inputs(place.plain, lambda: simulation.dataset, frozen_of(simulation.model))
    parts = [f"{name}: {one.digest}" for kind in (read.data, read.code, read.model or {}) for name, one in kind.items()]
    data = digest("\n".join(parts).encode())[:12]
    return "/".join(place.path.parts[-3:]) + f" with data and code {data}, fedcomp {__version__}"


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
    if config.algorithm.get("weights") == "tokens":
        raise ValueError("wire=tcp takes no algorithm.weights=tokens: the server has no texts to count; take samples")
